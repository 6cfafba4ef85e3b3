//! Conversion of driver result codes to errors of the contract.

use opencl_sys::cl_int;
use vrampool_backend::BackendError;

/// `CL_MEM_OBJECT_ALLOCATION_FAILURE`: there is no memory for a buffer. Drivers that allocate on the first use
/// of a buffer report it there.
pub(crate) const ALLOCATION_FAILURE: cl_int = -4;
/// `CL_OUT_OF_RESOURCES`: of memory when a buffer is made; elsewhere of registers, or what NVIDIA's driver
/// returns once a kernel has broken the context.
pub(crate) const OUT_OF_RESOURCES: cl_int = -5;
/// `CL_OUT_OF_HOST_MEMORY`
pub(crate) const OUT_OF_HOST_MEMORY: cl_int = -6;
/// `CL_BUILD_PROGRAM_FAILURE`
pub(crate) const BUILD_FAILURE: cl_int = -11;
/// `CL_INVALID_BUFFER_SIZE`: 0, or above `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
pub(crate) const INVALID_BUFFER_SIZE: cl_int = -61;
/// `CL_DEVICE_NOT_FOUND`
pub(crate) const DEVICE_NOT_FOUND: cl_int = -1;
/// `CL_PLATFORM_NOT_FOUND_KHR`: the loader knows no driver.
pub(crate) const PLATFORM_NOT_FOUND: cl_int = -1001;

/// Results after which nothing works on the device any more.
const LOST: [cl_int; 2] = [
    -2,    // CL_DEVICE_NOT_AVAILABLE
    -9999, // NVIDIA's own: an illegal read or write by a kernel
];

/// Results of broken contexts and of healthy ones: a further call finds out whether the context is broken.
const AMBIGUOUS: [cl_int; 4] = [
    OUT_OF_RESOURCES,
    -14, // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    -34, // CL_INVALID_CONTEXT
    -36, // CL_INVALID_COMMAND_QUEUE
];

/// The error that `code` stands for, if it is one.
pub(crate) fn check(call: &'static str, code: cl_int) -> Result<(), BackendError> {
    match code {
        0 => Ok(()),
        code if LOST.contains(&code) => Err(lost(call, code)),
        code => Err(BackendError::driver(call, i64::from(code), name(code))),
    }
}

/// As [`check`], for the call that makes memory of `requested` bytes: an error that released memory may
/// remedy is out of memory. [`OUT_OF_RESOURCES`] is so only in a context that still works, which the caller
/// finds out.
pub(crate) fn check_allocation(
    call: &'static str,
    code: cl_int,
    requested: u64,
    free: Option<u64>,
) -> Result<(), BackendError> {
    match code {
        ALLOCATION_FAILURE | OUT_OF_RESOURCES | OUT_OF_HOST_MEMORY => {
            Err(BackendError::out_of_memory(requested, free))
        }
        INVALID_BUFFER_SIZE => {
            Err(BackendError::invalid("bytes", format!("{call} takes no size of {requested} bytes")))
        }
        code => check(call, code),
    }
}

/// Whether `error` may mean that the context is broken.
pub(crate) fn is_ambiguous(error: &BackendError) -> bool {
    matches!(error, BackendError::Driver { code, .. } if AMBIGUOUS.iter().any(|&known| i64::from(known) == *code))
}

pub(crate) fn lost(call: &'static str, code: cl_int) -> BackendError {
    BackendError::lost(format!("{call} answers {code}, {}", name(code)))
}

/// The standard's names of the results from 0 down.
const FIRST: [&str; 20] = [
    "CL_SUCCESS",
    "CL_DEVICE_NOT_FOUND",
    "CL_DEVICE_NOT_AVAILABLE",
    "CL_COMPILER_NOT_AVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_OUT_OF_RESOURCES",
    "CL_OUT_OF_HOST_MEMORY",
    "CL_PROFILING_INFO_NOT_AVAILABLE",
    "CL_MEM_COPY_OVERLAP",
    "CL_IMAGE_FORMAT_MISMATCH",
    "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    "CL_BUILD_PROGRAM_FAILURE",
    "CL_MAP_FAILURE",
    "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "CL_COMPILE_PROGRAM_FAILURE",
    "CL_LINKER_NOT_AVAILABLE",
    "CL_LINK_PROGRAM_FAILURE",
    "CL_DEVICE_PARTITION_FAILED",
    "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
];

/// Names of the results from -30 down.
const FROM_30: [&str; 43] = [
    "CL_INVALID_VALUE",
    "CL_INVALID_DEVICE_TYPE",
    "CL_INVALID_PLATFORM",
    "CL_INVALID_DEVICE",
    "CL_INVALID_CONTEXT",
    "CL_INVALID_QUEUE_PROPERTIES",
    "CL_INVALID_COMMAND_QUEUE",
    "CL_INVALID_HOST_PTR",
    "CL_INVALID_MEM_OBJECT",
    "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "CL_INVALID_IMAGE_SIZE",
    "CL_INVALID_SAMPLER",
    "CL_INVALID_BINARY",
    "CL_INVALID_BUILD_OPTIONS",
    "CL_INVALID_PROGRAM",
    "CL_INVALID_PROGRAM_EXECUTABLE",
    "CL_INVALID_KERNEL_NAME",
    "CL_INVALID_KERNEL_DEFINITION",
    "CL_INVALID_KERNEL",
    "CL_INVALID_ARG_INDEX",
    "CL_INVALID_ARG_VALUE",
    "CL_INVALID_ARG_SIZE",
    "CL_INVALID_KERNEL_ARGS",
    "CL_INVALID_WORK_DIMENSION",
    "CL_INVALID_WORK_GROUP_SIZE",
    "CL_INVALID_WORK_ITEM_SIZE",
    "CL_INVALID_GLOBAL_OFFSET",
    "CL_INVALID_EVENT_WAIT_LIST",
    "CL_INVALID_EVENT",
    "CL_INVALID_OPERATION",
    "CL_INVALID_GL_OBJECT",
    "CL_INVALID_BUFFER_SIZE",
    "CL_INVALID_MIP_LEVEL",
    "CL_INVALID_GLOBAL_WORK_SIZE",
    "CL_INVALID_PROPERTY",
    "CL_INVALID_IMAGE_DESCRIPTOR",
    "CL_INVALID_COMPILER_OPTIONS",
    "CL_INVALID_LINKER_OPTIONS",
    "CL_INVALID_DEVICE_PARTITION_COUNT",
    "CL_INVALID_PIPE_SIZE",
    "CL_INVALID_DEVICE_QUEUE",
    "CL_INVALID_SPEC_ID",
    "CL_MAX_SIZE_RESTRICTION_EXCEEDED",
];

/// The standard's name of a result.
pub(crate) fn name(code: cl_int) -> &'static str {
    let distance = code.unsigned_abs() as usize;
    match code {
        PLATFORM_NOT_FOUND => "CL_PLATFORM_NOT_FOUND_KHR",
        ..=0 if distance < FIRST.len() => FIRST[distance],
        ..=-30 if distance - 30 < FROM_30.len() => FROM_30[distance - 30],
        _ => "a result that the standard does not name",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_standards_names() {
        for (code, expected) in [
            (0, "CL_SUCCESS"),
            (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
            (-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"),
            (-30, "CL_INVALID_VALUE"),
            (-59, "CL_INVALID_OPERATION"),
            (-61, "CL_INVALID_BUFFER_SIZE"),
            (-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"),
            (-1001, "CL_PLATFORM_NOT_FOUND_KHR"),
        ] {
            assert_eq!(name(code), expected, "{code}");
        }
        for code in [1, -20, -29, -73, -9999, i32::MIN, i32::MAX] {
            assert_eq!(name(code), "a result that the standard does not name", "{code}");
        }
    }

    #[test]
    fn only_codes_that_released_memory_may_remedy_are_out_of_memory() {
        for code in -80..=0 {
            let answer = check_allocation("clCreateBuffer", code, 7, Some(3));
            match code {
                0 => assert!(answer.is_ok()),
                -6..=-4 => {
                    let expected = BackendError::out_of_memory(7, Some(3));
                    assert_eq!(answer, Err(expected), "{code}");
                }
                -61 => {
                    assert!(matches!(answer, Err(BackendError::InvalidArgument { argument: "bytes", .. })))
                }
                -2 => assert!(answer.expect_err("the device is lost").is_device_lost()),
                _ => assert!(matches!(answer, Err(BackendError::Driver { .. })), "{code}"),
            }
        }
    }

    #[test]
    fn a_removed_device_is_lost_and_ambiguous_codes_are_not() {
        assert!(check("clFinish", -9999).expect_err("an error").is_device_lost());
        for code in [-5, -14, -34, -36] {
            let error = check("clFinish", code).expect_err("an error");
            assert!(is_ambiguous(&error) && !error.is_device_lost(), "{code}");
        }
        assert!(!is_ambiguous(&check("clFinish", -30).expect_err("an error")));
    }
}
