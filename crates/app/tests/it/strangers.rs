//! Malicious clients: the texts they choose become no metric label, and they neither hold a connection for long nor
//! block a thread.

mod labels;
mod patterns;
mod slow;
