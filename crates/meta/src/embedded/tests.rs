//! Tests of the embedded engine.
