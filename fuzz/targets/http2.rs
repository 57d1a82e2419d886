#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| astrabox_fuzz::proxy::http2(data));
