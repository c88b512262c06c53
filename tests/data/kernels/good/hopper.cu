/* greenbench
family  = "probe"
summary = "Gives registers back, which only sm_90a among its generation can."
entry   = "hopper"
arch    = "sm_90a"
internal = true
[launch]
block = 128
grid  = "sms"
*/
extern "C" __global__ void __launch_bounds__(128) hopper() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
