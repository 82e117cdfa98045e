"use strict";

// Begins of messages, in what one end of a connection to Postgres says.
class Messages {
    head = Buffer.alloc(5);
    filled = 0;
    skip = 0;
    // Tells the type of each, and where in the chunk it begins: before it, if that is negative.
    take(chunk, begins) {
        for (let at = 0; at < chunk.length; ) {
            if (this.skip > 0) {
                const skipped = Math.min(this.skip, chunk.length - at);
                this.skip -= skipped;
                at += skipped;
                continue;
            }
            // The first ones have no type, and begin with the length, which is small.
            if (this.filled === 0 && chunk[at] === 0) this.head[this.filled++] = 0;
            this.head[this.filled++] = chunk[at++];
            if (this.filled === this.head.length) {
                this.filled = 0;
                this.skip = Math.max(0, this.head.readUInt32BE(1) - 4);
                begins(String.fromCharCode(this.head[0]), at - this.head.length);
            }
        }
    }
}

module.exports = { Messages };
