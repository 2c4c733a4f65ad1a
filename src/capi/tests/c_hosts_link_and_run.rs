//! Hosts in C and C++ against an installed prefix, linked in each way that the documentation names, and run.

mod c;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// One prefix for all tests of this file. It is moved after the installation: nothing in it may name where it was made.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<std::path::PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let folder = c::folder("c-hosts");
        c::install(&folder.join("made here"));
        let moved = folder.join("moved");
        std::fs::rename(folder.join("made here"), &moved).unwrap();
        moved
    })
}

/// Flags by pkg-config, or `None` where there is none: the other ways to link are tested without it.
fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
    if !c::is_there("pkg-config") {
        eprintln!("no pkg-config here: left out");
        return None;
    }
    Some(c::pkg_config(prefix(), arguments))
}

/// Flags by hand.
fn flags(words: &[&str]) -> Vec<String> {
    let prefix = prefix().display();
    let mut flags = vec![format!("-I{prefix}/include"), format!("-L{prefix}/lib")];
    flags.extend(
        words
            .iter()
            .map(|word| word.replace("PREFIX", &prefix.to_string())),
    );
    flags
}

/// Compiles `source` with each compiler, links it with `flags`, runs it, and finds its last word. Its program, for further questions.
fn host(source: &str, name: &str, flags: &[String]) -> std::path::PathBuf {
    let program = c::folder(name).join("host");
    for mut compiler in c::compilers(source.ends_with(".cpp")) {
        compiler
            .args(["-g", "-pthread"])
            .arg(c::here("ctests").join(source))
            .arg("-xnone")
            .args(flags)
            .arg("-o")
            .arg(&program);
        c::run(&mut compiler);
        let said = c::run(Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")));
        assert!(
            said.starts_with(&format!(
                "{source}: ok, library {}",
                env!("CARGO_PKG_VERSION")
            )),
            "{said}"
        );
    }
    program
}

/// Names of the shared libraries that a program asks the loader for.
fn needed(program: &Path) -> Vec<String> {
    let table = c::run(Command::new("readelf").args(["-d", "-W"]).arg(program));
    let names = table
        .lines()
        .filter_map(|line| line.split_once("Shared library: [")?.1.strip_suffix(']'));
    names.map(String::from).collect()
}

#[test]
fn c_and_cpp_hosts_link_by_pkg_config() {
    let Some(flags) = pkg_config(&["--cflags", "--libs", "flashrt"]) else {
        return;
    };
    for source in ["host.c", "host.cpp"] {
        let program = host(source, &format!("pkg-config-{source}"), &flags);
        assert!(needed(&program).contains(&"libflashrt.so.0".to_string()));
    }
}

#[test]
fn a_host_links_by_the_names_of_the_published_libraries() {
    let names = ["-lflashrt_exec", "-lflashrt_runtime", "-lcapsule_core"];
    host("host.c", "published-names-by-hand", &flags(&names));
    let packages = [
        "--cflags",
        "--libs",
        "flashrt_exec",
        "flashrt_runtime",
        "capsule_core",
    ];
    let Some(flags) = pkg_config(&packages) else {
        return;
    };
    for name in names {
        assert!(
            flags.iter().any(|flag| flag == name),
            "{flags:?} lacks {name}"
        );
    }
    host("host.c", "published-names", &flags);
}

/// A program that was linked before names the published files; the loader must take all three for one library.
#[test]
fn a_program_that_asks_for_the_published_files_gets_one_library() {
    let folder = c::folder("old-program");
    let program = folder.join("host");
    // What the linker saw then: the functions, in libraries without a soname. The program asks for the files.
    let table = c::run(
        Command::new("nm")
            .args(["-D", "--defined-only", "--format=posix"])
            .arg(c::built().join("libflashrt_capi.so")),
    );
    let functions = table.lines().filter_map(|line| line.split(' ').next());
    let stub: String = functions
        .map(|name| format!("void {name}(void) {{}}\n"))
        .collect();
    std::fs::write(folder.join("stub.c"), stub).unwrap();
    for name in ["flashrt_exec", "flashrt_runtime", "capsule_core"] {
        let library = folder.join(format!("lib{name}.so"));
        c::run(
            Command::new("cc")
                .args(["-shared", "-fPIC"])
                .arg(folder.join("stub.c"))
                .arg("-o")
                .arg(library),
        );
    }
    let mut compiler = c::compilers(false).remove(0);
    compiler
        .arg(c::here("ctests/host.c"))
        .arg("-I")
        .arg(prefix().join("include"))
        .arg("-L")
        .arg(&folder)
        .args([
            "-Wl,--no-as-needed",
            "-lflashrt_exec",
            "-lflashrt_runtime",
            "-lcapsule_core",
        ])
        .arg("-o")
        .arg(&program);
    c::run(&mut compiler);
    let names = needed(&program);
    assert_eq!(
        &names[..3],
        [
            "libflashrt_exec.so",
            "libflashrt_runtime.so",
            "libcapsule_core.so"
        ]
    );
    c::run(Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")));
}

#[test]
fn c_and_cpp_hosts_link_statically() {
    let system = [
        "PREFIX/lib/libflashrt.a",
        "-lgcc_s",
        "-lutil",
        "-lrt",
        "-lpthread",
        "-lm",
        "-ldl",
    ];
    let mut ways = vec![flags(&system)];
    if let Some(mut flags) = pkg_config(&["--cflags", "flashrt"]) {
        flags.extend(c::pkg_config(
            prefix(),
            &["--variable=static_libs", "flashrt"],
        ));
        ways.push(flags);
    }
    for (way, flags) in ways.iter().enumerate() {
        for source in ["host.c", "host.cpp"] {
            let program = host(source, &format!("static-{way}-{source}"), flags);
            let names = needed(&program);
            assert!(
                !names.iter().any(|name| name.contains("flashrt")),
                "{names:?}"
            );
        }
    }
}

#[test]
fn the_programs_of_the_documentation_build_and_run() {
    let folder = c::folder("documentation");
    let page = std::fs::read_to_string(c::here("../../docs/c_abi.md")).unwrap();
    let mut names = Vec::new();
    for code in page.split("```c\n").skip(1) {
        let code = code.split("```").next().unwrap_or_default();
        let name = code
            .strip_prefix("/* ")
            .and_then(|rest| rest.split_once(" */"))
            .expect("a program names its file")
            .0;
        std::fs::write(folder.join(name), code).unwrap();
        names.push(name);
    }
    assert_eq!(names, ["host.c", "producer.c", "open.c"]);

    let build = |source: &str, output: &str, more: &[&str]| {
        let mut compiler = c::compilers(false).remove(0);
        let mut words = vec!["-lflashrt_runtime", "-lflashrt_exec", "-ldl"];
        words.extend(more);
        compiler
            .current_dir(&folder)
            .arg(source)
            .arg("-xnone")
            .args(flags(&words))
            .args(["-o", output]);
        c::run(&mut compiler);
    };
    let said = |program: &str| {
        let mut command = Command::new(folder.join(program));
        c::run(
            command
                .current_dir(&folder)
                .env("LD_LIBRARY_PATH", prefix().join("lib")),
        )
    };
    build("host.c", "host", &[]);
    assert_eq!(said("host"), "42");
    build("producer.c", "libproducer.so", &["-shared", "-fPIC"]);
    build("open.c", "open", &[]);
    let opened = said("open");
    assert!(
        opened.starts_with("frt-runtime-identity-v1\nmodel=halves\n")
            && opened.ends_with("\n-0.5 2"),
        "{opened}"
    );
}

#[test]
fn the_python_package_finds_the_library_of_its_own_prefix() {
    if !c::is_there("python3") {
        eprintln!("no python3 here: left out");
        return;
    }
    let program = "import flashrt_runtime as rt; print(rt._library.lib._name, rt.__version__)";
    let mut python = Command::new("python3");
    python
        .args(["-c", program])
        .env_remove("FLASHRT_LIBRARY")
        .env_remove("LD_LIBRARY_PATH")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", prefix().join("lib/python3/site-packages"));
    let library = prefix().join("lib/libflashrt.so.0");
    assert_eq!(
        c::run(&mut python),
        format!("{} {}", library.display(), env!("CARGO_PKG_VERSION"))
    );
}

/// `test/test_c_abi.py` does the same against the prefix that colcon installs, where CMake is always there.
#[test]
fn hosts_build_with_cmake_find_package() {
    let own = c::here("../../.ros/bin/cmake");
    let cmake = if c::is_there("cmake") {
        "cmake".into()
    } else {
        own
    };
    if !c::is_there(&cmake) {
        eprintln!("no CMake here: left out");
        return;
    }
    let build = c::folder("cmake-consumer");
    let configure = |version: &str| {
        let mut command = Command::new(&cmake);
        command
            .arg("-S")
            .arg(c::here("ctests/consumer"))
            .arg("-B")
            .arg(&build);
        command
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))
            .arg(format!("-DFLASHRT_WANTED={version}"));
        command
    };
    assert!(
        !c::output(&mut configure("99.0")).status.success(),
        "version 99.0 was found"
    );
    c::run(&mut configure("0.1"));
    c::run(Command::new(&cmake).arg("--build").arg(&build));
    c::run(
        Command::new(cmake.with_file_name("ctest"))
            .arg("--output-on-failure")
            .arg("--test-dir")
            .arg(&build),
    );
}
