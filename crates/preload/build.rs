//! Builds the tap, and puts it where [`Preload`](src/lib.rs) embeds it.

fn main() {
    let tap = hindcast_embed::Library {
        name: "tap",
        uses: &["taplog"],
        variable: "HINDCAST_TAP_LIBRARY",
    };
    tap.embed();
}
