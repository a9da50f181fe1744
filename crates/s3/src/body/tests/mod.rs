//! Tests of bodies.
