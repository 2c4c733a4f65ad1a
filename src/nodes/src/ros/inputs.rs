//! Subscriptions of a deployment: messages in as borrowed views, one copy into the engine's ring.
//!
//! Each topic has a Worker of its own with keep-last 1: a subscription of the node itself queues without bound, whatever
//! its depth says, and would deliver old frames. Workers live as long as the node (the client library never frees one), so
//! they are kept and used again by the next configure.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flashrt_session::config::{ImageConfig, PromptConfig, Reliability, StateConfig};
use flashrt_session::{Config, Engine, ImageRef, JointsRef, PushOutcome, ResultCode};
use rclrs::{log_warn, IntoPrimitiveOptions, Node, RclrsError, ToLogParams, Worker};
use ros_env::sensor_msgs::msg::rmw::{Image, JointState};
use ros_env::std_msgs::msg::rmw::String as StringMessage;

use super::{convert, qos};

/// Shortest time between two log lines about refused messages of one topic.
const REFUSAL_LOG_PERIOD: Duration = Duration::from_secs(2);

/// The input side of the node.
pub struct Inputs {
    node: Node,
    engine: Engine,
    workers: Vec<Worker<()>>,
    /// Subscriptions of the present deployment.
    subscriptions: Vec<Arc<dyn Any + Send + Sync>>,
    /// A latched prompt that came while the engine was not configured yet.
    early_prompt: Arc<Mutex<Option<String>>>,
}

fn note_refusal(node: &Node, topic: &str, outcome: PushOutcome) {
    if let PushOutcome::Refused { code, reason } = outcome {
        log_warn!(
            node.warn().throttle(REFUSAL_LOG_PERIOD),
            "{topic}: refused, {code}: {reason}"
        );
    }
}

impl Inputs {
    /// No subscriptions yet.
    pub fn new(node: &Node, engine: &Engine) -> Inputs {
        Inputs {
            node: Arc::clone(node),
            engine: engine.clone(),
            workers: Vec::new(),
            subscriptions: Vec::new(),
            early_prompt: Arc::default(),
        }
    }

    /// The worker of the next subscription.
    fn next_worker(&mut self) -> Worker<()> {
        let index = self.subscriptions.len();
        while self.workers.len() <= index {
            self.workers.push(self.node.create_worker(()));
        }
        Arc::clone(&self.workers[index])
    }

    /// Subscribes to every topic of a deployment.
    ///
    /// # Errors
    /// A topic name is not valid; no subscription is left.
    pub fn open(&mut self, config: &Config) -> Result<(), RclrsError> {
        let opened = self.try_open(config);
        if opened.is_err() {
            self.close();
        }
        opened
    }

    fn try_open(&mut self, config: &Config) -> Result<(), RclrsError> {
        self.close();
        for image in &config.images {
            self.open_image(image)?;
        }
        self.open_state(&config.state)?;
        self.open_prompt(&config.prompt)
    }

    fn open_image(&mut self, image: &ImageConfig) -> Result<(), RclrsError> {
        let (engine, node) = (self.engine.clone(), Arc::clone(&self.node));
        let (view, topic) = (image.view.clone(), image.topic.clone());
        let is_reliable = image.reliability == Reliability::Reliable;
        let subscription = self.next_worker().create_subscription(
            image.topic.as_str().qos(qos::newest_input(is_reliable)),
            move |message: Box<Image>| {
                let image = ImageRef {
                    width: message.width,
                    height: message.height,
                    // Not UTF-8 is no known encoding either.
                    encoding: convert::text(&message.encoding).unwrap_or("(not UTF-8)"),
                    is_bigendian: message.is_bigendian != 0,
                    step: message.step,
                    data: message.data.as_slice(),
                };
                let stamp =
                    convert::nanoseconds(message.header.stamp.sec, message.header.stamp.nanosec);
                note_refusal(&node, &topic, engine.push_image(&view, image, stamp));
            },
        )?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    fn open_state(&mut self, state: &StateConfig) -> Result<(), RclrsError> {
        let (engine, node, topic) = (
            self.engine.clone(),
            Arc::clone(&self.node),
            state.topic.clone(),
        );
        let is_reliable = state.reliability == Reliability::Reliable;
        let mut names = Vec::new();
        let subscription = self.next_worker().create_subscription(
            state.topic.as_str().qos(qos::newest_input(is_reliable)),
            move |message: Box<JointState>| {
                if !convert::cache_names(&mut names, &message.name) {
                    // The engine refuses and counts a message without names.
                    names.clear();
                }
                let joints = JointsRef {
                    names: &names,
                    positions: message.position.as_slice(),
                };
                let stamp =
                    convert::nanoseconds(message.header.stamp.sec, message.header.stamp.nanosec);
                note_refusal(&node, &topic, engine.push_joints(joints, stamp));
            },
        )?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    fn open_prompt(&mut self, prompt: &PromptConfig) -> Result<(), RclrsError> {
        let (engine, node, topic) = (
            self.engine.clone(),
            Arc::clone(&self.node),
            prompt.topic.clone(),
        );
        let early = Arc::clone(&self.early_prompt);
        let subscription = self.next_worker().create_subscription(
            prompt.topic.as_str().qos(qos::latched_input()),
            move |message: Box<StringMessage>| {
                let Some(text) = convert::text(&message.data) else {
                    log_warn!(&*node, "{topic}: refused, the prompt is not UTF-8");
                    return;
                };
                // Held while pushing, so that `configured` cannot look between the refusal and the note of it.
                let mut early = early.lock().unwrap_or_else(PoisonError::into_inner);
                match engine.push_prompt(text) {
                    Ok(_) => {}
                    Err(error) if error.code == ResultCode::NotConfigured => {
                        *early = Some(text.into())
                    }
                    Err(error) => log_warn!(&*node, "{topic}: refused, {error}"),
                }
            },
        )?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    /// The engine is configured now: a prompt that came too early is given to it.
    pub fn configured(&self) {
        let mut early = self
            .early_prompt
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = early.take() {
            if let Err(error) = self.engine.push_prompt(&text) {
                log_warn!(&*self.node, "prompt: refused, {error}");
            }
        }
    }

    /// Ends every subscription.
    pub fn close(&mut self) {
        self.subscriptions.clear();
        *self
            .early_prompt
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}
