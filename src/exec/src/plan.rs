//! Plans: replays in a fixed order with events between streams.

use crate::{Context, Error, Event, Graph, ShapeKey, StreamId, KEY_INHERIT};

/// A list of graph replays, each on its stream, with edges that become event waits.
///
/// Nodes run in the order in which they were added; an edge only orders streams against each other. A
/// plan decides nothing: no retry, no scheduling, no thread.
pub struct Plan {
    context: Context,
    nodes: Vec<Node>,
    /// Each stream once, in order of first use.
    streams: Vec<StreamId>,
}

struct Node {
    graph: Graph,
    key: ShapeKey,
    stream: StreamId,
    deps: Vec<usize>,
    /// Recorded after this node's replay, in every execution.
    done: Event,
}

impl Plan {
    pub(crate) fn new(context: &Context) -> Plan {
        Plan {
            context: context.clone(),
            nodes: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Adds a replay of `graph` on `stream` and returns its node number, counting from 0. With
    /// [`KEY_INHERIT`] as the key the node uses the key of each execution. The variant need not exist
    /// yet.
    ///
    /// # Errors
    /// [`Error::BadStream`]; [`Error::ForeignContext`]; the driver's failure to make the node's event.
    pub fn add(&mut self, graph: &Graph, key: ShapeKey, stream: StreamId) -> Result<usize, Error> {
        self.context.check_stream(stream)?;
        if graph.context().id() != self.context.id() {
            return Err(Error::ForeignContext {
                what: "graph",
                name: graph.name().into(),
            });
        }
        let done = self.context.event()?;
        self.nodes.push(Node {
            graph: graph.clone(),
            key,
            stream,
            deps: Vec::new(),
            done,
        });
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
        Ok(self.nodes.len() - 1)
    }

    /// Makes `node` wait for `dep`. Call it several times for fan-in; repeats are kept. An edge to a
    /// later node is accepted but orders nothing; [`Plan::validate`] refuses it.
    ///
    /// # Errors
    /// [`Error::BadEdge`] when either does not exist or both are the same.
    pub fn after(&mut self, node: usize, dep: usize) -> Result<(), Error> {
        let count = self.nodes.len();
        if node >= count || dep >= count || node == dep {
            return Err(Error::BadEdge { node, dep, count });
        }
        self.nodes[node].deps.push(dep);
        Ok(())
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Refuses edges to later nodes, which would order nothing.
    ///
    /// # Errors
    /// [`Error::ForwardEdge`], the first one in node order.
    pub fn validate(&self) -> Result<(), Error> {
        for (node, n) in self.nodes.iter().enumerate() {
            if let Some(&dep) = n.deps.iter().find(|&&dep| dep > node) {
                return Err(Error::ForwardEdge { node, dep });
            }
        }
        Ok(())
    }

    /// Submits all nodes in order: waits for each dependency's event, replays, records the node's
    /// event. Nodes added with [`KEY_INHERIT`] replay `key`, even if that is all ones itself.
    /// Allocates nothing. An empty plan succeeds.
    ///
    /// # Errors
    /// That of the first replay that fails. Nodes before it stay submitted, nodes after it are not.
    pub fn execute(&self, key: ShapeKey) -> Result<(), Error> {
        for (index, node) in self.nodes.iter().enumerate() {
            // A later node's event holds the mark of the previous execution, not of this one.
            for &dep in node.deps.iter().filter(|&&dep| dep < index) {
                // Fails only where the replay below fails too, and with that code.
                let _ = self.context.wait(node.stream, &self.nodes[dep].done);
            }
            let key = if node.key == KEY_INHERIT {
                key
            } else {
                node.key
            };
            node.graph.replay(key, node.stream)?;
            let _ = self.context.record(&node.done, node.stream);
        }
        Ok(())
    }

    /// Synchronises each stream that the plan uses, once. Allocates nothing.
    ///
    /// # Errors
    /// The first one met; the other streams are synchronised all the same.
    pub fn sync(&self) -> Result<(), Error> {
        let mut first = Ok(());
        for &stream in &self.streams {
            first = first.and(self.context.synchronize(stream));
        }
        first
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        for node in &self.nodes {
            list.entry(&format_args!(
                "{} key {} on stream {} after {:?}",
                node.graph.name(),
                node.key,
                node.stream,
                node.deps
            ));
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    /// A context with streams 0, 1, 2 and a graph that fills one byte under key 7.
    fn context_and_graph() -> (Context, Graph) {
        let context = Context::cpu(CpuOptions {
            threads: 1,
            ..CpuOptions::default()
        })
        .unwrap();
        context.stream(0).unwrap();
        context.stream(0).unwrap();
        let byte = context.alloc("byte", Space::Device, 1).unwrap();
        let graph = context.graph("fill", 0).unwrap();
        graph
            .capture::<Error>(7, |r| r.fill(&byte.all(), 1))
            .unwrap();
        (context, graph)
    }

    #[test]
    fn a_chain_over_three_streams_submits_launch_record_wait_in_turn() {
        let (context, graph) = context_and_graph();
        let mut plan = context.plan();
        for stream in 0..3 {
            let node = plan.add(&graph, 7, StreamId(stream)).unwrap();
            if node > 0 {
                plan.after(node, node - 1).unwrap();
            }
        }
        plan.execute(0).unwrap();
        assert_eq!(
            context.take_trace(),
            [
                "launch s0",
                "record s0",
                "wait s1",
                "launch s1",
                "record s1",
                "wait s2",
                "launch s2",
                "record s2"
            ]
        );
    }

    #[test]
    fn fan_out_and_fan_in_wait_once_for_each_edge() {
        let (context, graph) = context_and_graph();
        let mut plan = context.plan();
        let source = plan.add(&graph, KEY_INHERIT, StreamId(0)).unwrap();
        let left = plan.add(&graph, 7, StreamId(1)).unwrap();
        let right = plan.add(&graph, KEY_INHERIT, StreamId(2)).unwrap();
        let join = plan.add(&graph, 7, StreamId(0)).unwrap();
        for (node, dep) in [
            (left, source),
            (right, source),
            (join, left),
            (join, right),
            (join, right),
        ] {
            plan.after(node, dep).unwrap();
        }
        plan.validate().unwrap();
        for _ in 0..2 {
            plan.execute(7).unwrap();
            assert_eq!(
                context.take_trace(),
                [
                    "launch s0",
                    "record s0",
                    "wait s1",
                    "launch s1",
                    "record s1",
                    "wait s2",
                    "launch s2",
                    "record s2",
                    "wait s0",
                    "wait s0",
                    "wait s0",
                    "launch s0",
                    "record s0"
                ]
            );
        }
    }

    #[test]
    fn a_missing_variant_stops_the_plan_behind_what_was_submitted() {
        let (context, graph) = context_and_graph();
        let mut plan = context.plan();
        plan.add(&graph, 7, StreamId(0)).unwrap();
        plan.add(&graph, KEY_INHERIT, StreamId(1)).unwrap();
        plan.add(&graph, 7, StreamId(2)).unwrap();
        plan.after(1, 0).unwrap();
        let error = plan.execute(8).unwrap_err();
        assert_eq!(
            error,
            Error::NoVariant {
                graph: "fill".into(),
                key: Some(8),
                count: 1
            }
        );
        assert_eq!(context.take_trace(), ["launch s0", "record s0", "wait s1"]);
    }
    #[test]
    fn a_forward_edge_never_waits_for_the_execution_before() {
        let (context, graph) = context_and_graph();
        let mut plan = context.plan();
        plan.add(&graph, 7, StreamId(0)).unwrap();
        plan.add(&graph, 7, StreamId(1)).unwrap();
        plan.after(0, 1).unwrap();
        for _ in 0..2 {
            plan.execute(0).unwrap();
            assert_eq!(
                context.take_trace(),
                ["launch s0", "record s0", "launch s1", "record s1"]
            );
        }
    }
}
