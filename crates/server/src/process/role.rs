//! What a process does; each says its roles.

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Answers requests.
    Api,
    /// Hands waiting items to the engine.
    Dispatcher,
    /// Runs executions.
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
