use crate::RanksError;

/// Which of the processes this one is and where rank 0 waits, in the variables that torchrun sets too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub world: usize,
    /// Number of this process among those of its machine; with one GPU each, the GPU's index.
    pub local_rank: usize,
    /// Host name or address of rank 0.
    pub master: String,
    /// Port that rank 0 listens at.
    pub port: u16,
}

impl Membership {
    /// Reads `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` through `lookup`.
    ///
    /// # Errors
    /// The variable that is missing or wrong.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, RanksError> {
        let rank = number(&lookup, "RANK")?;
        let world = number(&lookup, "WORLD_SIZE")?;
        let local_rank = number(&lookup, "LOCAL_RANK")?;
        let master = text(&lookup, "MASTER_ADDR")?;
        let port: u16 = number(&lookup, "MASTER_PORT")?;
        if world == 0 {
            return Err(wrong("WORLD_SIZE", "is 0: at least one process is needed".into()));
        }
        if rank >= world {
            return Err(wrong(
                "RANK",
                format!("is {rank}, but WORLD_SIZE is {world}: ranks go from 0 to {}", world - 1),
            ));
        }
        if local_rank > rank {
            return Err(wrong("LOCAL_RANK", format!("is {local_rank}, more than RANK, which is {rank}")));
        }
        if port == 0 {
            return Err(wrong("MASTER_PORT", "is 0: every process must know the port beforehand".into()));
        }
        Ok(Self { rank, world, local_rank, master, port })
    }

    /// The variables that [`Membership::from_lookup`] reads, with their values.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("RANK", self.rank.to_string()),
            ("WORLD_SIZE", self.world.to_string()),
            ("LOCAL_RANK", self.local_rank.to_string()),
            ("MASTER_ADDR", self.master.clone()),
            ("MASTER_PORT", self.port.to_string()),
        ]
    }
}

fn wrong(name: &'static str, detail: String) -> RanksError {
    RanksError::Variable { name, detail }
}

fn text(lookup: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<String, RanksError> {
    match lookup(name).map(|value| value.trim().to_owned()) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(wrong(name, "is not set".into())),
    }
}

fn number<N: std::str::FromStr>(
    lookup: &impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<N, RanksError> {
    let value = text(lookup, name)?;
    value.parse().map_err(|_| wrong(name, format!("is {value:?}, which is no number in its range")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<Membership, RanksError> {
        let usual = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node-0"),
            ("MASTER_PORT", "29500"),
        ];
        Membership::from_lookup(|name| {
            let found = changes.iter().chain(&usual).find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn torchrun_variables_are_read_and_written_alike() -> Result<(), RanksError> {
        let member = read(&[])?;
        assert_eq!(
            member,
            Membership { rank: 3, world: 4, local_rank: 1, master: "node-0".into(), port: 29_500 }
        );
        let written = member.variables();
        let again = Membership::from_lookup(|name| {
            written.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
        })?;
        assert_eq!(again, member);
        Ok(())
    }

    #[test]
    fn a_missing_or_wrong_variable_is_named_with_its_value() {
        for (name, value, says) in [
            ("RANK", "", "RANK is not set"),
            ("WORLD_SIZE", "four", "WORLD_SIZE is \"four\", which is no number"),
            ("RANK", "-1", "RANK is \"-1\""),
            ("RANK", "4", "RANK is 4, but WORLD_SIZE is 4: ranks go from 0 to 3"),
            ("WORLD_SIZE", "0", "WORLD_SIZE is 0"),
            ("LOCAL_RANK", "7", "LOCAL_RANK is 7, more than RANK"),
            ("MASTER_PORT", "70000", "MASTER_PORT is \"70000\""),
            ("MASTER_PORT", "0", "MASTER_PORT is 0"),
            ("MASTER_ADDR", " ", "MASTER_ADDR is not set"),
        ] {
            let error = read(&[(name, value)]).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
