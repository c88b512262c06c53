/* greenbench
family  = "latency"
summary = "Empty kernel: the floor under every launch."
entry   = "null_launch"
args    = []
verify  = "none"
sources = ["RRZE-HPC/gpu-benches gpu-small-kernels"]
buffers = []

[launch]
block = 32
grid  = 1
*/

// Limited by the launch path alone: one warp that exits at once.
extern "C" __global__ void null_launch() {}
