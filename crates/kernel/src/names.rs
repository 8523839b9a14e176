//! A macro for enums whose values have a name that is stored and shown. One table declares the enum, the list of its
//! values, and the conversions to and from the name.
//!
//! Invariants
//! - A name in the table is the same as the name that serde writes (set by the enum's serde attributes).
//! - `ALL` has the order of the table. People see the values in this order.

/// Declares an enum with `ALL`, `name` and `parse`. If its values have no names, declares it with `ALL` only.
macro_rules! names {
    ($(#[$meta:meta])* $vis:vis enum $type:ident {
        $($(#[$note:meta])* $variant:ident = $name:literal),* $(,)?
    }) => {
        crate::names::names! { $(#[$meta])* $vis enum $type { $($(#[$note])* $variant),* } }

        impl $type {
            /// The name as stored and shown.
            $vis fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }

            $vis fn parse(text: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|known| known.name() == text)
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $type:ident { $($(#[$note:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        $vis enum $type { $($(#[$note])* $variant),* }

        impl $type {
            $vis const ALL: [$type; [$($type::$variant),*].len()] = [$($type::$variant),*];
        }
    };
}

pub(crate) use names;
