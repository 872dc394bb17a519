//! Values typed once.
