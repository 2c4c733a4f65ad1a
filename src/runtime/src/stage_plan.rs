//! Stage plans by name: how a model is cut into stages, chosen when it is exported.
//!
//! A [`StagePlan`] names graphs and dependencies; [`StagePlan::resolve`] checks it against what an export declares and gives the indices
//! that the binary interface knows. [`StagePlans`] holds plans under a name, for one model or for all, either fixed or made from typed
//! arguments. The name of a plan never reaches a consumer as something to execute; a producer puts [`StagePlan::identity_pairs`] into the
//! identity, since another cut is another deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Declaration, DeclarationBuilder, Error, NameBytes, StageDecl};

/// A stage of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name, unique in the plan.
    pub name: String,
    /// Name of the graph that it replays.
    pub graph: String,
    /// Name of the stream that the graph must be on; `None` takes whatever it is on.
    pub stream: Option<String>,
    /// Names of earlier stages that must be complete before.
    pub after: Vec<String>,
}

impl Stage {
    /// A stage that replays `graph` and waits for nothing.
    pub fn new(name: &str, graph: &str) -> Stage {
        Stage {
            name: name.to_owned(),
            graph: graph.to_owned(),
            stream: None,
            after: Vec::new(),
        }
    }

    /// Asks for a stream by name.
    pub fn on(mut self, stream: &str) -> Stage {
        self.stream = Some(stream.to_owned());
        self
    }

    /// Waits for these earlier stages.
    pub fn after(mut self, stages: &[&str]) -> Stage {
        self.after = stages.iter().map(|s| (*s).to_owned()).collect();
        self
    }
}

/// A cut of a model into stages, in the order in which they fire.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    /// Name.
    pub name: String,
    /// Stages.
    pub stages: Vec<Stage>,
    /// The arguments that it was made from, defaults included.
    pub arguments: Arguments,
}

impl StagePlan {
    /// A plan without arguments.
    pub fn new(name: &str, stages: Vec<Stage>) -> StagePlan {
        StagePlan {
            name: name.to_owned(),
            stages,
            arguments: Arguments::default(),
        }
    }

    /// Graph and dependency indices of every stage against the graphs and streams of `export`.
    ///
    /// # Errors
    /// Each with its own text: no stage; a stage name twice; an unknown graph, or one whose name is exported twice; an unknown stream; a
    /// graph on another stream; a dependency on an unknown stage, on the stage itself, on a later one, or around in a circle.
    pub fn resolve<N: NameBytes>(&self, export: &Declaration<N>) -> Result<Vec<StageDecl>, Error> {
        if self.stages.is_empty() {
            return self.refuse("it has 0 stages");
        }
        for (i, s) in self.stages.iter().enumerate() {
            if self.position(&s.name) != Some(i) {
                return self.refuse(format!("stage '{}' is there twice", s.name));
            }
        }
        let mut out = Vec::with_capacity(self.stages.len());
        for (i, s) in self.stages.iter().enumerate() {
            let graph = self.graph(s, export)?;
            self.stream(s, graph, export)?;
            let after = s.after.iter().map(|dep| self.dependency(i, dep));
            out.push(StageDecl {
                graph: graph as u32,
                after: after.collect::<Result<_, Error>>()?,
            });
        }
        Ok(out)
    }

    /// Resolves the plan against what `builder` has and adds its stages. On an error none is added.
    pub fn declare<N: NameBytes>(&self, builder: &mut DeclarationBuilder<N>) -> Result<(), Error> {
        let stages = self.resolve(builder.declared())?;
        // The stages of a plan count from 0.
        if !builder.declared().stages.is_empty() {
            return self.refuse("stages are declared already");
        }
        stages
            .iter()
            .try_for_each(|s| builder.add_stage(s.graph, &s.after))
    }

    /// What tells this cut from another: `stage_plan` with the name, then `stage_plan.<argument>` with each value.
    pub fn identity_pairs(&self) -> Vec<(String, String)> {
        let name = ("stage_plan".to_owned(), self.name.clone());
        let argument =
            |(name, value): (&String, &Value)| (format!("stage_plan.{name}"), value.to_string());
        std::iter::once(name)
            .chain(self.arguments.0.iter().map(argument))
            .collect()
    }

    fn position(&self, stage: &str) -> Option<usize> {
        self.stages.iter().position(|s| s.name == stage)
    }

    fn graph<N: NameBytes>(&self, s: &Stage, export: &Declaration<N>) -> Result<usize, Error> {
        let named = |g: &crate::GraphDecl<N>| g.name.name_bytes() == s.graph.as_bytes();
        let mut found = export
            .graphs
            .iter()
            .enumerate()
            .filter(|(_, g)| named(g))
            .map(|(i, _)| i);
        match (found.next(), found.next()) {
            (Some(i), None) => Ok(i),
            (None, _) => self.refuse(format!(
                "stage '{}' replays graph '{}', which is not exported: there are {}",
                s.name,
                s.graph,
                list(export.graphs.iter().map(|g| g.name.name_bytes()))
            )),
            (Some(a), Some(b)) => self.refuse(format!(
                "stage '{}' replays graph '{}', which is exported twice, as {a} and {b}",
                s.name, s.graph
            )),
        }
    }

    fn stream<N: NameBytes>(
        &self,
        s: &Stage,
        graph: usize,
        export: &Declaration<N>,
    ) -> Result<(), Error> {
        let Some(wanted) = &s.stream else {
            return Ok(());
        };
        let Some(stream) = export
            .streams
            .iter()
            .find(|t| t.name.name_bytes() == wanted.as_bytes())
        else {
            return self.refuse(format!(
                "stage '{}' is for stream '{wanted}', which is not exported: there are {}",
                s.name,
                list(export.streams.iter().map(|t| t.name.name_bytes()))
            ));
        };
        let (wants, has) = (stream.stream_id.0, export.graphs[graph].stream_id);
        if wants != has {
            return self.refuse(format!(
                "stage '{}' is for stream '{wanted}' ({wants}), its graph '{}' is on stream {has}",
                s.name, s.graph
            ));
        }
        Ok(())
    }

    fn dependency(&self, own: usize, dep: &str) -> Result<u32, Error> {
        let name = &self.stages[own].name;
        match self.position(dep) {
            None => self.refuse(format!(
                "stage '{name}' depends on stage '{dep}', which is not in the plan"
            )),
            Some(d) if d < own => Ok(d as u32),
            Some(d) if d == own => self.refuse(format!("stage '{name}' depends on itself")),
            Some(d) => match self.path(d, own) {
                Some(path) => {
                    self.refuse(format!("stages depend on each other: '{name}' on {path}"))
                }
                None => self.refuse(format!(
                    "stage '{name}' depends on stage '{dep}', which comes later"
                )),
            },
        }
    }

    /// The dependencies that lead from stage `from` to stage `to`, as text.
    fn path(&self, from: usize, to: usize) -> Option<String> {
        let mut came: BTreeMap<usize, usize> = BTreeMap::new();
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                let mut names = vec![at];
                while let Some(before) = came.get(names.last()?) {
                    names.push(*before);
                }
                let quoted: Vec<String> = names
                    .iter()
                    .rev()
                    .map(|i| format!("'{}'", self.stages[*i].name))
                    .collect();
                return Some(quoted.join(" on "));
            }
            for next in self.stages[at]
                .after
                .iter()
                .filter_map(|d| self.position(d))
            {
                if seen.insert(next) {
                    came.insert(next, at);
                    open.push(next);
                }
            }
        }
        None
    }

    fn refuse<T>(&self, reason: impl Into<String>) -> Result<T, Error> {
        refuse(&self.name, reason)
    }
}

/// Type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Whole number.
    Int,
    /// Number.
    Float,
    /// True or false.
    Bool,
    /// Text.
    Text,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ValueKind::Int => "a whole number",
            ValueKind::Float => "a number",
            ValueKind::Bool => "true or false",
            ValueKind::Text => "a text",
        })
    }
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Whole number.
    Int(i64),
    /// Number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(String),
}

impl Value {
    /// Its type.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::Int(_) => ValueKind::Int,
            Value::Float(_) => ValueKind::Float,
            Value::Bool(_) => ValueKind::Bool,
            Value::Text(_) => ValueKind::Text,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(v) => write!(f, "{v}"),
            // Six decimals, as other identity pairs print numbers.
            Value::Float(v) => write!(f, "{v:.6}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Text(v) => f.write_str(v),
        }
    }
}

macro_rules! values {
    ($($variant:ident $type:ty, $get:ident, $doc:literal;)*) => {
        $(impl From<$type> for Value {
            fn from(v: $type) -> Value {
                Value::$variant(v)
            }
        })*
        impl Arguments {
            $(#[doc = $doc]
            pub fn $get(&self, name: &str) -> Option<&$type> {
                match self.0.get(name) {
                    Some(Value::$variant(v)) => Some(v),
                    _ => None,
                }
            })*
        }
    };
}

/// Arguments of a plan by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments(BTreeMap<String, Value>);

impl Arguments {
    /// No argument.
    pub fn none() -> Arguments {
        Arguments::default()
    }

    /// Adds or replaces one.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Arguments {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

values! {
    Int i64, int, "The whole number called `name`.";
    Float f64, float, "The number called `name`.";
    Bool bool, bool, "The truth value called `name`.";
    Text String, text, "The text called `name`.";
}

/// An argument that a plan takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Type; a whole number also serves as a number.
    pub kind: ValueKind,
    /// Taken when the argument is not given; `None` makes it required.
    pub default: Option<Value>,
}

impl Param {
    /// An argument that must be given.
    pub fn required(name: &str, kind: ValueKind) -> Param {
        Param {
            name: name.to_owned(),
            kind,
            default: None,
        }
    }

    /// An argument with a default, whose type is its own.
    pub fn optional(name: &str, default: impl Into<Value>) -> Param {
        let default = default.into();
        Param {
            name: name.to_owned(),
            kind: default.kind(),
            default: Some(default),
        }
    }
}

type Make = Box<dyn Fn(&Arguments) -> Result<Vec<Stage>, Error> + Send + Sync>;

struct Entry {
    params: Vec<Param>,
    make: Make,
}

/// Plans under a name, for one model or for all.
#[derive(Default)]
pub struct StagePlans {
    /// By `(model, name)`; no model means all.
    entries: BTreeMap<(Option<String>, String), Entry>,
}

impl StagePlans {
    /// Without a plan.
    pub fn empty() -> StagePlans {
        StagePlans::default()
    }

    /// The published plans.
    ///
    /// | Name | Model | Stages (graph) | Argument |
    /// |---|---|---|---|
    /// | `full` | all | `infer` | |
    /// | `context_action` | `pi05` | `context` → `action` (`decode_only`) | |
    /// | `context_rtc_prefix_action` | `pi05` | `context` → `action` (`decode_rtc_prefix`) | `prefix_len`, rows of the last chunk that stay, 0 or more |
    /// | `context_rtc_vjp_guided_action` | `pi05` | `context` → `action` (`decode_rtc_vjp_guided`) | |
    pub fn builtin() -> StagePlans {
        let mut plans = StagePlans::empty();
        let mut add = |model: Option<&str>, name: &str, params: Vec<Param>, make: Make| {
            let key = (model.map(str::to_owned), name.to_owned());
            plans.entries.insert(key, Entry { params, make });
        };
        let cut = |graph: &'static str| {
            vec![
                Stage::new("context", "context"),
                Stage::new("action", graph).after(&["context"]),
            ]
        };
        add(
            None,
            "full",
            vec![],
            Box::new(|_| Ok(vec![Stage::new("infer", "infer")])),
        );
        add(
            Some("pi05"),
            "context_action",
            vec![],
            Box::new(move |_| Ok(cut("decode_only"))),
        );
        const PREFIX: &str = "context_rtc_prefix_action";
        let prefix_len = Param::required("prefix_len", ValueKind::Int);
        let prefix = move |arguments: &Arguments| match arguments.int("prefix_len") {
            Some(0..) => Ok(cut("decode_rtc_prefix")),
            other => refuse(
                PREFIX,
                format!("prefix_len is {}, expected 0 or more", other.unwrap_or(&-1)),
            ),
        };
        add(Some("pi05"), PREFIX, vec![prefix_len], Box::new(prefix));
        let guided = move |_: &Arguments| Ok(cut("decode_rtc_vjp_guided"));
        add(
            Some("pi05"),
            "context_rtc_vjp_guided_action",
            vec![],
            Box::new(guided),
        );
        plans
    }

    /// Registers a fixed plan under its name, for `model` or for all. A taken name is refused.
    pub fn register(&mut self, model: Option<&str>, plan: StagePlan) -> Result<(), Error> {
        let StagePlan { name, stages, .. } = plan;
        self.register_factory(model, &name, vec![], move |_| Ok(stages.clone()))
    }

    /// Registers what makes the stages from arguments; `make` gets every argument of `params`, with its type. A taken name and a parameter
    /// that is there twice are refused.
    pub fn register_factory(
        &mut self,
        model: Option<&str>,
        name: &str,
        params: Vec<Param>,
        make: impl Fn(&Arguments) -> Result<Vec<Stage>, Error> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let key = (model.map(str::to_owned), name.to_owned());
        if self.entries.contains_key(&key) {
            return Err(Error::Duplicate {
                kind: "stage plan",
                name: name.to_owned(),
            });
        }
        for (i, p) in params.iter().enumerate() {
            if params[..i].iter().any(|q| q.name == p.name) {
                return refuse(name, format!("parameter '{}' is there twice", p.name));
            }
        }
        let make = Box::new(make);
        self.entries.insert(key, Entry { params, make });
        Ok(())
    }

    /// Names of the plans for `model`: its own and those for all, sorted.
    pub fn names(&self, model: &str) -> Vec<&str> {
        let is_for = |m: &Option<String>| m.as_deref().is_none_or(|m| m == model);
        let names: BTreeSet<&str> = self
            .entries
            .keys()
            .filter(|(m, _)| is_for(m))
            .map(|(_, name)| name.as_str())
            .collect();
        names.into_iter().collect()
    }

    /// The plan `name` of `model` made from `arguments`; a plan of the model goes before one for all.
    ///
    /// # Errors
    /// An unknown plan; an argument that it does not take, that has another type or that is missing, by name; what the factory refuses.
    pub fn plan(&self, model: &str, name: &str, arguments: &Arguments) -> Result<StagePlan, Error> {
        let own = (Some(model.to_owned()), name.to_owned());
        let general = (None, name.to_owned());
        let Some(entry) = self
            .entries
            .get(&own)
            .or_else(|| self.entries.get(&general))
        else {
            let known = list(self.names(model).into_iter().map(str::as_bytes));
            return refuse(
                name,
                format!("model '{model}' has no such plan: there are {known}"),
            );
        };
        let arguments = complete(name, &entry.params, arguments)?;
        Ok(StagePlan {
            name: name.to_owned(),
            stages: (entry.make)(&arguments)?,
            arguments,
        })
    }
}

/// The given arguments, checked, with the defaults of those that are not given.
fn complete(plan: &str, params: &[Param], given: &Arguments) -> Result<Arguments, Error> {
    if let Some(unknown) = given
        .0
        .keys()
        .find(|name| !params.iter().any(|p| p.name == **name))
    {
        let known = list(params.iter().map(|p| p.name.as_bytes()));
        return refuse(
            plan,
            format!("it takes no argument '{unknown}': it takes {known}"),
        );
    }
    let mut out = BTreeMap::new();
    for p in params {
        let value = match (given.0.get(&p.name), &p.default) {
            (Some(Value::Int(v)), _) if p.kind == ValueKind::Float => Value::Float(*v as f64),
            (Some(v), _) if v.kind() == p.kind => v.clone(),
            (Some(v), _) => {
                return refuse(
                    plan,
                    format!("argument '{}' is {v}, expected {}", p.name, p.kind),
                );
            }
            (None, Some(v)) => v.clone(),
            (None, None) => {
                return refuse(
                    plan,
                    format!("argument '{}' is missing, expected {}", p.name, p.kind),
                )
            }
        };
        out.insert(p.name.clone(), value);
    }
    Ok(Arguments(out))
}

fn list<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let names: Vec<String> = names
        .map(|n| format!("'{}'", String::from_utf8_lossy(n)))
        .collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

fn refuse<T>(plan: &str, reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Declaration {
        what: "stage plan",
        name: plan.to_owned(),
        reason: reason.into(),
    })
}
