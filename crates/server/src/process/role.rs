//! The roles that a process may have.

/// A role of a process: a part of the service's work that the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Answers HTTP requests of the API.
    Api,
    /// Claims queue items and starts them on the engine.
    Dispatcher,
    /// Performs the nodes of executions.
    Worker,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Api, Role::Dispatcher, Role::Worker];

    pub fn name(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::Dispatcher => "dispatcher",
            Role::Worker => "worker",
        }
    }

    pub fn parse(name: &str) -> Option<Role> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}
