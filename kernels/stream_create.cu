/* greenbench
family  = "latency"
host    = "stream_create"
summary = "Host time to create a stream in a green context; api 0 cuda.core, 1 driver, 2 runtime (13.1)."
entry   = "stream_create"
args    = []
verify  = "none"
sources = ["CUDA Driver API: cuGreenCtxStreamCreate"]
buffers = []

[params]
api = 0

[launch]
block = 32
grid  = "sms"
*/

// Limited by the driver. Streams are made and destroyed one after the other in one context. The kernel runs in such a
// stream when the probe is verified, with a census behind it.
extern "C" __global__ void stream_create() {}
