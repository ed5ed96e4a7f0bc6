//! Link flags for binaries and tests that call libtorch: a run path to its shared objects, and `libtorch` itself kept
//! on the link line so that `libtorch_cuda` is loaded (the linker drops it otherwise and the GPU is silently unused).
//! `torch-sys` tells where libtorch lies; with the feature `doc-only` it tells nothing and this does nothing.
//!
//! Unlike its equals in the other torch crates, this one also compiles `cuda/`: what libtorch's C++ API has and `tch`
//! does not. The parts on CUDA need CUDA's headers where libtorch has CUDA; no GPU is needed to build.

use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script things by its environment")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    if let Ok(dir) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
        println!("cargo:rustc-link-arg=-L{dir}");
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo:rustc-link-arg=-ltorch");
        compile_shim(Path::new(&dir));
    }
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script things by its environment")]
fn compile_shim(lib: &Path) {
    println!("cargo:rerun-if-changed=cuda");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    let torch = lib.parent().expect("libtorch's lib folder lies in its own folder");
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".into());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .pic(true)
        .debug(false)
        .warnings(false) // libtorch's headers
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .includes([torch.join("include"), torch.join("include/torch/csrc/api/include")])
        .file("cuda/context.cpp")
        .file("cuda/host.cpp");
    if lib.join("libc10_cuda.so").exists() {
        build
            .include(cuda_headers(torch))
            .file("cuda/graph.cpp")
            .file("cuda/kernels.cpp")
            .compile("plexforge_nn");
        println!("cargo:rustc-link-search=native={}", lib.display());
        println!("cargo:rustc-link-lib=torch_cuda");
        println!("cargo:rustc-link-lib=c10_cuda");
    } else {
        build.file("cuda/without_cuda.cpp").compile("plexforge_nn");
    }
}

/// CUDA's headers: those that the torch wheel's dependencies bring, else of a CUDA toolkit.
fn cuda_headers(torch: &Path) -> PathBuf {
    let mut folders = Vec::new();
    if let Some(wheels) = torch.parent().and_then(|site| std::fs::read_dir(site.join("nvidia")).ok()) {
        folders.extend(wheels.flatten().map(|entry| entry.path()));
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
        folders.extend(std::env::var_os(name).map(PathBuf::from));
    }
    folders.push("/usr/local/cuda".into());
    let complete = |include: &PathBuf| {
        ["cuda_runtime_api.h", "crt/host_defines.h"].iter().all(|header| include.join(header).exists())
    };
    folders.iter().map(|folder| folder.join("include")).find(complete).unwrap_or_else(|| {
        panic!(
            "libtorch in {} has CUDA but no complete CUDA headers are there: `make setup` installs them \
             (nvidia-cuda-crt, see requirements.txt), or set CUDA_HOME",
            torch.display()
        )
    })
}
