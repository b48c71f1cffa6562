//! ops
use shmem::{Elem, Kernel};
/// r
pub trait Reduce<T: Elem>: Kernel<T> + Copy {
    /// n
    fn name(&self) -> &'static str;
    /// c
    fn complete(&self) -> bool {
        false
    }
}
/// s
#[derive(Clone, Copy, Debug)]
pub struct Sum;
impl Kernel<f32> for Sum {
    type Acc = f32;
    #[inline(always)]
    fn widen(&self, e: f32) -> f32 {
        e
    }
    #[inline(always)]
    fn combine(&self, a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn narrow(&self, a: f32) -> f32 {
        a
    }
}
impl Reduce<f32> for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }
}
