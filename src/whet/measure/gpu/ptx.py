"""What the timer runs beside a kernel, as text that the driver compiles for any GPU since Volta."""

# `sleep` counts cycles of the same clock as torch's. `flush` reads sixteen bytes a thread and
# turn, and stores what it found only where that is a value that zeros cannot give.
PTX = b"""
.version 6.0
.target sm_70
.address_size 64

.visible .entry whet_sleep(.param .u64 cycles)
{
    .reg .pred %again;
    .reg .b64 %wanted, %start, %passed;

    ld.param.u64 %wanted, [cycles];
    mov.u64 %start, %clock64;
spin:
    mov.u64 %passed, %clock64;
    sub.s64 %passed, %passed, %start;
    setp.lt.s64 %again, %passed, %wanted;
    @%again bra spin;
    ret;
}

.visible .entry whet_fill(.param .u64 target)
{
    .reg .b32 %zero;
    .reg .b64 %to;

    ld.param.u64 %to, [target];
    cvta.to.global.u64 %to, %to;
    mov.u32 %zero, 0;
    st.global.u32 [%to], %zero;
    ret;
}

.visible .entry whet_flush(.param .u64 source, .param .u64 count, .param .u64 target)
{
    .reg .pred %done;
    .reg .b32 %block, %blocks, %thread, %threads, %a, %b, %c, %d, %total;
    .reg .b64 %from, %to, %left, %place, %step, %at;

    ld.param.u64 %from, [source];
    ld.param.u64 %left, [count];
    ld.param.u64 %to, [target];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mul.wide.u32 %place, %block, %threads;
    cvt.u64.u32 %at, %thread;
    add.u64 %place, %place, %at;
    mul.wide.u32 %step, %blocks, %threads;
    mov.u32 %total, 0;
read:
    setp.ge.u64 %done, %place, %left;
    @%done bra keep;
    shl.b64 %at, %place, 4;
    add.u64 %at, %from, %at;
    ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
    or.b32 %total, %total, %a;
    or.b32 %total, %total, %b;
    or.b32 %total, %total, %c;
    or.b32 %total, %total, %d;
    add.u64 %place, %place, %step;
    bra read;
keep:
    setp.eq.u32 %done, %total, 0;
    @%done bra end;
    st.global.u32 [%to], %total;
end:
    ret;
}
"""
