//! Finding and rewriting system-call sites.
