//! Rank 0's side of a run that several processes train: it starts those of this machine, waits for all, hands out the work
//! and trains with them.

use ranks::{Group, Membership, NcclGroup, RanksError, Rendezvous, Shared, TcpGroup, Token, local};
use tch::Device;

use crate::plan::Order;
use crate::settings::RanksSettings;
use crate::{Outcome, Plan, TrainError, train};

/// What a run has to compute with.
#[derive(Debug, Clone)]
pub struct Crew {
    /// Devices of this machine, in the order of local ranks.
    pub devices: Vec<Device>,
    /// Threads of arithmetic of each process; 0 = libtorch's choice.
    pub threads: usize,
    /// How processes come together.
    pub ranks: RanksSettings,
    /// Secret of the processes of several machines.
    pub token: Option<Token>,
}

impl Crew {
    fn world(&self) -> usize {
        self.devices.len() * self.ranks.nodes
    }

    /// Trains alone, or as rank 0 of several.
    ///
    /// # Errors
    /// As [`train`]; `Ranks` when a process is lost, with its last words.
    pub fn train(&self, plan: &Plan) -> Result<Outcome, TrainError> {
        if self.world() == 1 {
            return train(plan, &Shared::alone());
        }
        let token = self.token.clone().unwrap_or_else(Token::generate);
        let rendezvous = Rendezvous::bind(self.ranks.listen)?;
        let mut children = local::spawn(&self.children(&rendezvous, &token)?)?;
        let options = self.ranks.options();
        let together = rendezvous
            .wait(self.world(), &token, &options, || children.check())
            .and_then(|control| group(control, plan.device));
        let outcome = together.map_err(TrainError::from).and_then(|group| {
            let order = serde_json::to_vec(&Order::of(plan)).expect("plain numbers and text");
            group.broadcast(order)?;
            train(plan, &group)
        });
        match outcome {
            Err(TrainError::Ranks(error)) => Err(children.explain(error).into()),
            other => other,
        }
    }

    fn children(&self, rendezvous: &Rendezvous, token: &Token) -> Result<local::Plan, RanksError> {
        let address = rendezvous.address();
        let program = std::env::current_exe()
            .map_err(|e| RanksError::Input(format!("the trainer does not know its own program: {e}")))?;
        let names: Vec<String> = self.devices.iter().map(name_of).collect();
        Ok(local::Plan {
            program,
            args: vec!["rank".into(), names.join(",").into(), self.threads.to_string().into()],
            local: self.devices.len(),
            world: self.world(),
            master: if address.ip().is_unspecified() { "127.0.0.1".into() } else { address.ip().to_string() },
            port: address.port(),
            token: token.clone(),
            variables: vec![("PPX__TELEMETRY__FORMAT".into(), "pretty".into())],
        })
    }
}

/// NCCL between GPUs, TCP elsewhere.
pub(crate) fn group(control: TcpGroup, device: Device) -> Result<Shared, RanksError> {
    Ok(if device.is_cuda() { Shared::new(NcclGroup::new(control, device)?) } else { Shared::new(control) })
}

fn name_of(device: &Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".into(),
    }
}

/// Which process of a run this one is, for messages.
pub(crate) fn told(member: &Membership) -> String {
    format!("rank {} of {}", member.rank, member.world)
}
