//! The enums, and conversions to and from their variants.

#[cfg(feature = "cuda")]
use vrampool_cuda::{CudaDevice, CudaEvent, CudaMemory, CudaStream};
#[cfg(feature = "host")]
use vrampool_host::{HostDevice, HostEvent, HostMemory, HostStream};
#[cfg(feature = "opencl")]
use vrampool_opencl::{OpenClDevice, OpenClEvent, OpenClMemory, OpenClStream};
#[cfg(feature = "wgpu")]
use vrampool_wgpu::{WgpuDevice, WgpuEvent, WgpuMemory, WgpuStream};

/// Runs the same code on the value of any variant.
macro_rules! on_each {
    ($any:expr, $value:ident => $result:expr) => {
        match *$any {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref $value) => $result,
            #[cfg(feature = "opencl")]
            Self::OpenCl(ref $value) => $result,
            #[cfg(feature = "wgpu")]
            Self::Wgpu(ref $value) => $result,
            #[cfg(feature = "host")]
            Self::Host(ref $value) => $result,
        }
    };
}
pub(super) use on_each;

/// An enum with a variant for each backend, named as its feature.
macro_rules! any {
    (
        $(#[$attribute:meta])*
        $Any:ident, $argument:literal: $($feature:literal $Variant:ident($Own:ty) $as_own:ident),+
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum $Any {
            $(
                #[doc = concat!("The backend's own, with the feature `", $feature, "`.")]
                #[cfg(feature = $feature)]
                $Variant($Own),
            )+
        }

        impl $Any {
            /// The name of the backend behind it, which is also that of its feature.
            #[must_use]
            pub fn backend(&self) -> &'static str {
                match *self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$Variant(_) => $feature,
                    )+
                }
            }
        }

        $(
            #[cfg(feature = $feature)]
            impl $Any {
                /// The backend's own.
                ///
                /// # Errors
                /// [`BackendError::InvalidArgument`](vrampool_backend::BackendError::InvalidArgument) when it
                /// is another backend's.
                pub fn $as_own(&self) -> Result<&$Own, vrampool_backend::BackendError> {
                    match self {
                        Self::$Variant(own) => Ok(own),
                        #[allow(unreachable_patterns, reason = "there may be one variant")]
                        _ => Err(other($argument, $feature, self.backend())),
                    }
                }
            }

            #[cfg(feature = $feature)]
            impl From<$Own> for $Any {
                fn from(own: $Own) -> Self {
                    Self::$Variant(own)
                }
            }

            #[cfg(feature = $feature)]
            impl TryFrom<$Any> for $Own {
                type Error = vrampool_backend::BackendError;

                fn try_from(any: $Any) -> Result<Self, vrampool_backend::BackendError> {
                    match any {
                        $Any::$Variant(own) => Ok(own),
                        #[allow(unreachable_patterns, reason = "there may be one variant")]
                        _ => Err(other($argument, $feature, any.backend())),
                    }
                }
            }

            #[cfg(feature = $feature)]
            impl<'a> TryFrom<&'a mut $Any> for &'a mut $Own {
                type Error = vrampool_backend::BackendError;

                fn try_from(any: &'a mut $Any) -> Result<Self, vrampool_backend::BackendError> {
                    let backend = any.backend();
                    match any {
                        $Any::$Variant(own) => Ok(own),
                        #[allow(unreachable_patterns, reason = "there may be one variant")]
                        _ => Err(other($argument, $feature, backend)),
                    }
                }
            }

            #[cfg(feature = $feature)]
            impl<'a> TryFrom<&'a $Any> for &'a $Own {
                type Error = vrampool_backend::BackendError;

                fn try_from(any: &'a $Any) -> Result<Self, vrampool_backend::BackendError> {
                    any.$as_own()
                }
            }
        )+
    };
}

#[allow(dead_code, reason = "no backend may be compiled in")]
fn other(argument: &'static str, wanted: &str, found: &str) -> vrampool_backend::BackendError {
    vrampool_backend::BackendError::invalid(
        argument,
        format!("it is one of the backend {found}, not of {wanted}"),
    )
}

any! {
    /// A device of any backend that is compiled in. A clone is another handle to it.
    #[derive(Clone)]
    AnyDevice, "device": "cuda" Cuda(CudaDevice) as_cuda, "opencl" OpenCl(OpenClDevice) as_opencl,
        "wgpu" Wgpu(WgpuDevice) as_wgpu, "host" Host(HostDevice) as_host
}

any! {
    /// A stream of an [`AnyDevice`].
    #[derive(Clone)]
    AnyStream, "stream": "cuda" Cuda(CudaStream) as_cuda, "opencl" OpenCl(OpenClStream) as_opencl,
        "wgpu" Wgpu(WgpuStream) as_wgpu, "host" Host(HostStream) as_host
}

any! {
    /// A point in an [`AnyStream`].
    AnyEvent, "event": "cuda" Cuda(CudaEvent) as_cuda, "opencl" OpenCl(OpenClEvent) as_opencl,
        "wgpu" Wgpu(WgpuEvent) as_wgpu, "host" Host(HostEvent) as_host
}

any! {
    /// Memory of an [`AnyDevice`].
    AnyMemory, "memory": "cuda" Cuda(CudaMemory) as_cuda, "opencl" OpenCl(OpenClMemory) as_opencl,
        "wgpu" Wgpu(WgpuMemory) as_wgpu, "host" Host(HostMemory) as_host
}

any! {
    /// Kernels that verify memory and the order of streams of an [`AnyDevice`], in tests.
    AnyTestKernels, "kernels": "cuda" Cuda(vrampool_cuda::TestKernels) as_cuda,
        "opencl" OpenCl(vrampool_opencl::TestKernels) as_opencl, "wgpu" Wgpu(vrampool_wgpu::TestKernels) as_wgpu,
        "host" Host(vrampool_host::TestKernels) as_host
}
