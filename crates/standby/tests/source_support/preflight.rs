//! What is found before anything is touched.
