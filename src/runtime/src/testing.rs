//! (toy producer follows)
