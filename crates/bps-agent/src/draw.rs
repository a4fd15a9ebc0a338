//! Numbers that nothing else has: of connections, directories and sockets.

use std::io;

/// Draws a number of 128 bits.
///
/// # Errors
/// What the kernel's source of random numbers refused.
pub(super) fn draw() -> io::Result<u128> {
    let half = || getrandom::u64().map_err(io::Error::other);
    Ok(u128::from(half()?) << 64 | u128::from(half()?))
}
