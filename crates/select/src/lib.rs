//! Which kinds of requests can matter to a change (R³, section 4.5).
