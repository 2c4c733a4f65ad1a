//! Records what a bag recorder would: inputs that a test puts, the tick log and the chunks of one node.

use std::io::Cursor;
use std::sync::Mutex;

use flashrt_session::bag::{BagMessage, BagSink, McapSink};
use flashrt_session::messages::*;
use flashrt_session::*;

/// Topic, type and CDR of one message.
pub type Message = (String, &'static str, Vec<u8>);

/// The messages in the order of their arrival.
pub struct Bag {
    /// Full name of the node that is recorded.
    pub node: &'static str,
    /// All of them.
    pub messages: Mutex<Vec<Message>>,
}

impl Bag {
    /// An empty bag of a node.
    pub fn new(node: &'static str) -> Bag {
        Bag {
            node,
            messages: Mutex::default(),
        }
    }
    /// Appends a message.
    pub fn put(&self, topic: &str, type_name: &'static str, data: Vec<u8>) {
        let message = (topic.into(), type_name, data);
        self.messages.lock().unwrap().push(message);
    }
    /// The bytes of an mcap file with everything.
    pub fn mcap(&self) -> Vec<u8> {
        let mut sink = McapSink::new(Cursor::new(Vec::new())).unwrap();
        for (i, (topic, type_name, data)) in self.messages.lock().unwrap().iter().enumerate() {
            let message = BagMessage {
                topic,
                type_name,
                log_time_ns: i as u64,
                data,
            };
            sink.write(&message, "").unwrap();
        }
        sink.finish().unwrap();
        sink.into_inner().into_inner()
    }
    /// The chunks, as CDR.
    pub fn chunks(&self) -> Vec<Vec<u8>> {
        let all = self.messages.lock().unwrap();
        all.iter()
            .filter(|m| m.1 == ACTION_CHUNK)
            .map(|m| m.2.clone())
            .collect()
    }
}

impl Sink for Bag {
    fn chunk(&self, c: &ChunkRef<'_>) {
        let topic = format!("{}/action_chunk", self.node);
        self.put(&topic, ACTION_CHUNK, encode_chunk(c));
    }
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, r: &TickRecord) {
        let topic = format!("{}/tick_log", self.node);
        self.put(&topic, TICK_LOG, encode_tick_log(r));
    }
    fn event(&self, _: Event) {}
}
