/* greenbench
family  = "latency"
summary = "Empty kernel, each launch programmatically dependent on the one before it (PDL)."
entry   = "launch_pdl"
args    = []
verify  = "none"
sources = ["PTX ISA: griddepcontrol"]
min_cc  = [9, 0]
buffers = []

[launch]
block = 32
grid  = 1
pdl   = true
*/

// Limited by the launch path alone, as null_launch: but the next launch is let in at once, so that it is set up while this one
// still runs, and it then waits until all that came before is complete and visible.
extern "C" __global__ void launch_pdl() {
    asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
}
