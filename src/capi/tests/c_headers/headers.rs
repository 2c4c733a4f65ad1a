//! The C headers, made by cbindgen from the Rust side: one table row a header.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One header and what it is made from.
pub struct Header {
    /// Path below `include/`.
    pub file: &'static str,
    /// What it says first.
    pub about: &'static str,
    /// Headers that it includes.
    pub includes: &'static [&'static str],
    /// Rust files, relative to this crate.
    pub sources: &'static [&'static str],
    /// Constants that come out as one C enum: its name, its text, what its constants begin with.
    pub enums: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// Handles and what each is: a pointer to a struct that nobody looks into.
    pub handles: &'static [(&'static str, &'static str)],
    /// Other lines that stand before the first declaration.
    pub before: &'static str,
    /// Types of other headers that this one does not include, as C spells them.
    pub foreign: &'static [(&'static str, &'static str)],
    /// Functions of the published headers; every other one is marked as additive.
    pub published: &'static [&'static str],
}

pub const HEADERS: &[Header] = &[
    Header {
        file: "flashrt/exec.h",
        about: "Contexts, streams, events, named buffers, graphs and plans.\n\
            A handle that is null, dead or of another kind is answered with FRT_ERR_INVALID or null, never followed.\n\
            Names are null or end in a NUL; other pointers are null or point to as many bytes as the call says.\n\
            One context is driven by one thread at a time. A status is 0 or negative; frt_last_error() has the text.",
        includes: &[],
        sources: &["src/status.rs", "src/exec/abi.rs"],
        enums: &[
            ("frt_status", "How a call ends.", &["FRT_OK", "FRT_ERR_"]),
        ],
        handles: &[
            ("frt_ctx", "An execution context; owns everything that is made from it."),
            ("frt_buffer", "Named memory of a context."),
            ("frt_graph", "Table from shape key to captured executable."),
            ("frt_plan", "Replays in a fixed order, with waits between streams."),
            ("frt_event", "A point in a stream."),
        ],
        before: "// Key of a graph variant; every value is a key.\ntypedef uint64_t frt_shape_key;\n",
        foreign: &[],
        published: &[
            "frt_ctx_create", "frt_ctx_destroy", "frt_ctx_stream", "frt_ctx_wrap_stream", "frt_ctx_event",
            "frt_event_destroy", "frt_event_record", "frt_stream_wait", "frt_buffer_alloc", "frt_buffer_wrap",
            "frt_buffer_dptr", "frt_buffer_bytes", "frt_buffer_name", "frt_buffer_copy", "frt_graph_create",
            "frt_graph_destroy", "frt_graph_capture", "frt_graph_adopt", "frt_graph_bind", "frt_graph_replay",
            "frt_graph_has_variant", "frt_graph_evict", "frt_graph_evict_lru", "frt_graph_variant_count",
            "frt_plan_create", "frt_plan_destroy", "frt_plan_add", "frt_plan_after", "frt_plan_execute", "frt_plan_sync",
        ],
    },
    Header {
        file: "flashrt/runtime.h",
        about: "A producer's export: streams, graphs, buffers, state regions, identity. The builder makes one.\n\
            Nothing here follows a handle of exec.h. retain and release may be called on any thread.",
        includes: &["flashrt/exec.h"],
        sources: &["../runtime/src/abi/export.rs", "src/runtime/export_abi.rs"],
        enums: &[
            ("frt_runtime_role", "Bits of frt_runtime_buffer_desc.role.", &["FRT_RT_ROLE_"]),
            ("frt_runtime_region_flags", "Bits of frt_runtime_region_desc.flags.", &["FRT_RT_REGION_"]),
        ],
        handles: &[("frt_runtime_builder", "An export or a model runtime in the making.")],
        before: "",
        foreign: &[],
        published: &[
            "frt_runtime_builder_create", "frt_runtime_builder_add_stream", "frt_runtime_builder_add_graph",
            "frt_runtime_builder_add_buffer", "frt_runtime_builder_add_region", "frt_runtime_builder_add_identity",
            "frt_runtime_builder_set_manifest", "frt_runtime_builder_finish", "frt_runtime_fingerprint",
        ],
    },
    Header {
        file: "flashrt/model_runtime.h",
        about: "One tickable model over an export: ports, stages, verbs, and the three ways to make one.\n\
            Check abi_version, then struct_size (never for equality, always >=), then the field behind it.",
        includes: &["flashrt/runtime.h"],
        sources: &["../runtime/src/abi/model.rs", "src/runtime/model_abi.rs"],
        enums: &[
            ("frt_rt_modality", "What a port carries.", &["FRT_RT_MOD_"]),
            ("frt_rt_dtype", "Element type of a port.", &["FRT_RT_DTYPE_"]),
            ("frt_rt_layout", "Order of a port's axes.", &["FRT_RT_LAYOUT_"]),
            ("frt_rt_pixel_format", "Pixel format of a frt_image_view.", &["FRT_RT_PIXEL_"]),
            ("frt_rt_port_direction", "Direction of a port.", &["FRT_RT_PORT_IN", "FRT_RT_PORT_OUT"]),
            ("frt_rt_port_update", "When and how a port may be written.", &["FRT_RT_PORT_S"]),
        ],
        handles: &[],
        before: "",
        foreign: &[],
        published: &[
            "frt_runtime_builder_add_port", "frt_runtime_builder_add_stage", "frt_runtime_builder_add_generic_stage",
            "frt_runtime_builder_set_generic_stage_runner", "frt_runtime_builder_finish_model",
            "frt_model_runtime_builder_create_metadata", "frt_model_runtime_wrap", "frt_model_runtime_override_verbs",
        ],
    },
    Header {
        file: "capsule/capsule.h",
        about: "Frozen execution state over a backend of the caller's: snapshot, restore, blobs, and the tick helpers.\n\
            One cap_ctx is driven by one thread at a time. The core has no thread and no loop.",
        includes: &[],
        sources: &["src/capsule/abi.rs"],
        enums: &[],
        handles: &[
            ("cap_ctx", "A context over one backend."),
            ("cap_capsule", "A frozen state."),
            ("cap_buffer", "Memory of the backend."),
            ("cap_graph", "A graph of the backend."),
            ("cap_event", "An event of the backend."),
        ],
        before: "// Key of a graph variant; every value is a key.\ntypedef uint64_t cap_shape_key;\n\
            // What a frt_ctx of flashrt/exec.h points to.\nstruct frt_ctx_s;\n",
        foreign: &[("frt_ctx_s", "struct frt_ctx_s ")],
        published: &[
            "cap_abi_version", "cap_ctx_create", "cap_ctx_destroy", "cap_ctx_fingerprint", "cap_snapshot",
            "cap_capsule_ready", "cap_restore", "cap_restore_into", "cap_regions", "cap_tier_move", "cap_serialize",
            "cap_load", "cap_capsule_drop", "cap_fire", "cap_drive_tick", "cap_swap", "cap_sync",
        ],
    },
];

/// Where the committed headers are.
pub fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

impl Header {
    /// The text of the header.
    pub fn generate(&self) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut config = self.config();
        let mut builder = cbindgen::Builder::new();
        let mut suffixes = BTreeMap::new();
        let mut strings = String::new();
        for source in self.sources {
            let path = root.join(source);
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            suffixes.extend(integer_constants(&text));
            strings += &string_constants(&text);
            // Types that no function of the header names are part of it too.
            config.export.include.extend(types(&text));
            builder = builder.with_src(path);
        }
        if !strings.is_empty() {
            let before = config.after_includes.unwrap_or_default();
            config.after_includes = Some(format!("{before}\n\n{}", strings.trim_end()));
        }
        let bindings = builder
            .with_config(config)
            .generate()
            .unwrap_or_else(|e| panic!("{}: {e}", self.file));
        let mut text = Vec::new();
        bindings.write(&mut text);
        self.finish(
            &String::from_utf8(text).expect("cbindgen writes UTF-8"),
            &suffixes,
        )
    }

    fn config(&self) -> cbindgen::Config {
        let guard = self.file.to_uppercase().replace(['/', '.'], "_");
        let mut preamble: Vec<String> =
            ["This file is generated from the Rust sources; see docs/c_abi.md. Do not edit."]
                .into_iter()
                .chain(self.about.lines().map(str::trim))
                .map(|line| format!("// {line}"))
                .collect();
        preamble.push("// SPDX-License-Identifier: Apache-2.0".into());
        let mut config = cbindgen::Config {
            language: cbindgen::Language::C,
            cpp_compat: true,
            usize_is_size_t: true,
            style: cbindgen::Style::Both,
            documentation_style: cbindgen::DocumentationStyle::C99,
            line_length: 160,
            header: Some(preamble.join("\n")),
            include_guard: Some(guard),
            no_includes: true,
            sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
            includes: self.includes.iter().map(|s| s.to_string()).collect(),
            ..Default::default()
        };
        // cbindgen would print their Rust shape.
        let mut before = String::new();
        for (handle, about) in self.handles {
            config
                .export
                .exclude
                .extend([handle.to_string(), format!("{handle}_s")]);
            before += &format!("// {about}\ntypedef struct {handle}_s *{handle};\n");
        }
        before += self.before;
        config
            .export
            .exclude
            .extend(["frt_shape_key".into(), "cap_shape_key".into()]);
        config.after_includes =
            Some(format!("\n{}", before.trim_end())).filter(|text| text != "\n");
        config
    }

    /// Enums in place of the constants that form one, C suffixes, words that mean something in Rust only, marks of what is
    /// additive.
    fn finish(&self, text: &str, suffixes: &BTreeMap<String, &'static str>) -> String {
        let mut out: Vec<String> = Vec::new();
        let mut comment: Vec<String> = Vec::new();
        let mut members: Vec<Vec<String>> = vec![Vec::new(); self.enums.len()];
        let mut enums_at = None;
        for line in text.lines() {
            let line = plain(line);
            if line.starts_with("//") {
                comment.push(line);
                continue;
            }
            while comment.last().is_some_and(|c| c == "//") {
                comment.pop(); // an annotation for cbindgen stood there
            }
            if let Some((name, value)) = line
                .strip_prefix("#define ")
                .and_then(|rest| rest.split_once(' '))
            {
                let group = self
                    .enums
                    .iter()
                    .position(|(_, _, starts)| starts.iter().any(|s| name.starts_with(s)));
                if let Some(group) = group {
                    enums_at.get_or_insert(out.len());
                    members[group].extend(comment.drain(..).map(|c| format!("  {c}")));
                    members[group].push(format!("  {name} = {value},"));
                    continue;
                }
                out.append(&mut comment);
                out.push(match suffixes.get(name) {
                    Some(&"u") => format!("#define {name} {value}u"),
                    Some(&"ull") => format!("#define {name} UINT64_C({value})"),
                    Some(alias) => format!("#define {name} (({alias}){value})"),
                    _ => line,
                });
                continue;
            }
            let line = (self.foreign.iter()).fold(line, |line, (name, spelling)| {
                line.replace(&format!("{name} "), spelling)
            });
            if let Some(function) = declared(&line) {
                if !self.published.contains(&function) {
                    comment.insert(0, "// Additive: not in the published header.".into());
                }
            }
            out.append(&mut comment);
            out.push(line);
        }
        let mut enums: Vec<String> = Vec::new();
        for ((name, about, _), mut members) in self.enums.iter().zip(members) {
            assert!(!members.is_empty(), "{}: no constant for {name}", self.file);
            let last = members.last_mut().expect("not empty");
            last.pop(); // the comma, which C90 and C++98 do not take
            enums.extend([format!("// {about}"), format!("typedef enum {name} {{")]);
            enums.append(&mut members);
            enums.extend([format!("}} {name};"), String::new()]);
        }
        let at = enums_at.unwrap_or(out.len());
        out.splice(at..at, enums);
        let mut text = out.join("\n") + "\n";
        while text.contains("\n\n\n") {
            text = text.replace("\n\n\n", "\n\n");
        }
        text
    }
}

/// A line without what only rustdoc understands.
fn plain(line: &str) -> String {
    let mut line = line.replace("self_", "self");
    if line.trim_start().starts_with("//") {
        line = line
            .replace("[`", "`")
            .replace("`]", "`")
            .replace("# Safety", "Safety:")
            .replace("# Errors", "Errors:");
    }
    line.trim_end().to_string()
}

/// The function that a line declares.
pub fn declared(line: &str) -> Option<&str> {
    if line.starts_with([' ', '#', '/', '}']) || line.starts_with("typedef") {
        return None;
    }
    let head = &line[..line.find('(')?];
    let name = &head[head
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .map_or(0, |at| at + 1)..];
    (name.starts_with("frt_") || name.starts_with("cap_")).then_some(name)
}

/// Names of the structs, enums and aliases of a Rust file.
fn types(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let rest = ["pub struct ", "pub enum ", "pub type "]
            .iter()
            .find_map(|kind| line.strip_prefix(kind))?;
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .map(String::from)
    })
}

/// The string constants of a Rust file as macros, which cbindgen leaves out.
fn string_constants(text: &str) -> String {
    let mut out = String::new();
    let mut docs: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc);
            continue;
        }
        if let Some((name, value)) = line
            .strip_prefix("pub const ")
            .and_then(|rest| rest.split_once(": &str = "))
        {
            docs.iter().for_each(|doc| out += &format!("//{doc}\n"));
            out += &format!("#define {name} {}\n\n", value.trim_end_matches(';'));
        }
        docs.clear();
    }
    out
}

/// Names and C suffixes of the unsigned constants of a Rust file.
fn integer_constants(text: &str) -> impl Iterator<Item = (String, &'static str)> + '_ {
    text.lines().filter_map(|line| {
        let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(": ")?;
        let suffix = match rest.split_once(' ')?.0 {
            "u32" => "u",
            "u64" => "ull",
            "frt_shape_key" => "frt_shape_key",
            _ => return None,
        };
        Some((name.to_string(), suffix))
    })
}
