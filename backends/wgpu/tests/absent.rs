//! Without a driver, every way in is a typed error. Asked of processes that see none.

use vrampool_test_support::{assert_unavailable, passed, test_again};
use vrampool_wgpu::{WgpuDevice, list};

#[test]
#[ignore = "the other test starts it, where no driver is to be found"]
fn asked_by_the_other_test() {
    let answers = [
        list().map(|_| ()),
        WgpuDevice::open(0).map(|_| ()),
        WgpuDevice::open(usize::MAX).map(|_| ()),
        WgpuDevice::open_by_name("wgpu").map(|_| ()),
        WgpuDevice::open_by_name("wgpu:1").map(|_| ()),
        WgpuDevice::open_by_name("").map(|_| ()),
    ];
    let texts = assert_unavailable("wgpu", answers);
    assert!(texts.iter().all(|text| text.contains("Vulkan")), "{texts:?}");
    println!("\nasked");
}

#[test]
fn without_a_driver_there_is_no_device_and_no_panic() {
    let mut command = test_again("asked_by_the_other_test");
    // The two names that Vulkan's loader has for where drivers are, and the one of OpenGL's; layers that would show
    // a device are named elsewhere.
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
        command.env(name, "/nonexistent/driver.json");
    }
    let said = passed(command.env_remove("VK_ADD_DRIVER_FILES"));
    assert!(said.contains("\nasked\n"), "{said}");
}
