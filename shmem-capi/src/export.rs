//! The one way a function gets its C names: `shmem_…`, and its twin `pshmem_…`, which a tool calls that has put its own
//! function in the place of the first.

/// Exports functions under the names that their pieces make, with the prefix `p` for the twin. In the body, `NAME` is the
/// name.
macro_rules! export {
    ($(
        [$($piece:expr),+] fn($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {$(
        const _: () = {
            const NAME: &str = concat!($($piece),+);
            #[unsafe(export_name = concat!("p", $($piece),+))]
            unsafe extern "C" fn twin($($arg: $ty),*) $(-> $ret)? {
                let _ = NAME;
                $body
            }
            #[unsafe(export_name = concat!($($piece),+))]
            unsafe extern "C" fn function($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the same function, with the same arguments.
                unsafe { twin($($arg),*) }
            }
        };
    )*};
}

/// Exports functions with and without a context in front: `shmem_…` on the default context, and `shmem_ctx_…`.
macro_rules! export_ctx {
    ($(
        [$($piece:expr),+] fn($ctx:ident; $($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {$(
        export! {
            ["shmem_", $($piece),+] fn($($arg: $ty),*) $(-> $ret)? {
                let $ctx = $crate::ctx::Handle::DEFAULT;
                $body
            }
            ["shmem_ctx_", $($piece),+] fn($ctx: $crate::ctx::Handle, $($arg: $ty),*) $(-> $ret)? $body
        }
    )*};
}
