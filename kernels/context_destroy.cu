/* greenbench
family  = "latency"
host    = "context_destroy"
summary = "Host time to destroy a green context of the lane; api 0 cuda.core, 1 driver, 2 runtime (13.1)."
entry   = "context_destroy"
args    = []
verify  = "none"
sources = ["CUDA Driver API: cuGreenCtxDestroy"]
buffers = []

[params]
api = 0

[launch]
block = 32
grid  = "sms"
*/

// Limited by the driver, which takes back what the context held. The context is new and has never run anything.
// The kernel runs in a new context when the probe is verified, with a census behind it.
extern "C" __global__ void context_destroy() {}
