/* greenbench
family  = "latency"
host    = "event_record"
summary = "Host time to record an event on an idle stream; api 0 cuda.core, 1 driver, 2 runtime."
entry   = "event_record"
args    = []
verify  = "none"
sources = ["CUDA Driver API: cuEventRecord"]
buffers = []

[params]
api = 0

[launch]
block = 32
grid  = "sms"
*/

// Limited by the host: one call that puts a time stamp behind what is in the stream. The kernel is what the event has to wait
// for when the probe is verified.
extern "C" __global__ void event_record() {}
