/* greenbench
family  = "latency"
host    = "context_create"
summary = "Host time to create a green context of the lane; api 0 cuda.core, 1 driver, 2 runtime (13.1)."
entry   = "context_create"
args    = []
verify  = "none"
sources = ["CUDA Driver API: cuGreenCtxCreate"]
buffers = []

[params]
api = 0

[launch]
block = 32
grid  = "sms"
*/

// Limited by the driver, which sets up channels and memory for the context. The split is made before; the descriptor of its
// resources is part of the time. The kernel runs in a new context when the probe is verified, with a census behind it.
extern "C" __global__ void context_create() {}
