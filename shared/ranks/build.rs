//! Link flags for binaries and tests that call libtorch: a run path to its shared objects, and `libtorch` itself kept
//! on the link line so that `libtorch_cuda` is loaded (the linker drops it otherwise and the GPU is silently unused).
//! `torch-sys` tells where libtorch lies; with the feature `doc-only` it tells nothing and this does nothing.

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script things by its environment")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    if let Ok(dir) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
        println!("cargo:rustc-link-arg=-L{dir}");
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo:rustc-link-arg=-ltorch");
    }
}
