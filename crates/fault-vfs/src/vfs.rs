//! The file system: passes every operation to SQLite's own one, records changes, and fails where a fault is injected.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

use rusqlite::ffi;

use crate::{SqliteFileChange, has_fault, record};

/// An open file: SQLite's part first, then ours, then the file of SQLite's own file system.
#[repr(C)]
struct FaultInjectingSqliteFile {
    base: ffi::sqlite3_file,
    path: *mut String,
    real: *mut ffi::sqlite3_file,
}

/// SQLite's own file system, which does the work.
static mut REAL_VFS: *mut ffi::sqlite3_vfs = std::ptr::null_mut();
static INSTALL: Once = Once::new();

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 2: shared memory for write-ahead logs, but no mapped files, which would bypass the recording.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes all SQLite connections that this process opens from now on use this file system.
///
/// # Panics
/// SQLite does not accept the file system.
pub fn install() {
    INSTALL.call_once(|| {
        // SAFETY: SQLite's default file system lives as long as the process. The copy of it is leaked, so it does, too; its
        // functions do not depend on the address of the structure, except for `xOpen`, which is called with the original.
        unsafe {
            let real = ffi::sqlite3_vfs_find(std::ptr::null());
            REAL_VFS = real;
            let mut vfs = Box::new(*real);
            vfs.pNext = std::ptr::null_mut();
            vfs.zName = c"segue-fault".as_ptr();
            let own_bytes = c_int::try_from(size_of::<FaultInjectingSqliteFile>()).expect("a small structure");
            vfs.szOsFile = own_bytes + (*real).szOsFile;
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(vfs), 1), ffi::SQLITE_OK, "the file system is accepted");
        }
    });
}

/// Returns the file of SQLite's own file system.
///
/// # Safety
/// `file` was opened by [`open`].
unsafe fn real_file(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: as the caller promises.
    unsafe { (*file.cast::<FaultInjectingSqliteFile>()).real }
}

/// Returns the functions of SQLite's own file system.
///
/// # Safety
/// `file` was opened by [`open`].
unsafe fn real_methods(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: as the caller promises; the functions of a file system are static.
    unsafe { &*(*real_file(file)).pMethods }
}

/// Returns the path of the file.
///
/// # Safety
/// `file` was opened by [`open`].
unsafe fn file_path(file: *mut ffi::sqlite3_file) -> String {
    // SAFETY: as the caller promises; the path is freed only when the file is closed.
    unsafe { (*(*file.cast::<FaultInjectingSqliteFile>()).path).clone() }
}

fn is_wal(path: &str) -> bool {
    path.ends_with("-wal")
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes memory of the registered size, a name that is null or ends with zero, and valid pointers.
    unsafe {
        let fault_file = file.cast::<FaultInjectingSqliteFile>();
        let real = file.cast::<u8>().add(size_of::<FaultInjectingSqliteFile>()).cast::<ffi::sqlite3_file>();
        (*fault_file).base.pMethods = std::ptr::null();
        let code = (*REAL_VFS).xOpen.expect("it can open files")(REAL_VFS, name, real, flags, out_flags);
        if code == ffi::SQLITE_OK {
            let path = if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() };
            (*fault_file).path = Box::into_raw(Box::new(path));
            (*fault_file).real = real;
            (*fault_file).base.pMethods = &raw const METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: SQLite passes a name that ends with zero.
    unsafe {
        record(SqliteFileChange::Delete { path: CStr::from_ptr(name).to_string_lossy().into_owned() });
        (*REAL_VFS).xDelete.expect("it can delete files")(REAL_VFS, name, sync_folder)
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file was opened by `open`, and SQLite does not use it again.
    unsafe {
        let code = real_methods(file).xClose.expect("it can close files")(real_file(file));
        drop(Box::from_raw((*file.cast::<FaultInjectingSqliteFile>()).path));
        code
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file was opened by `open`, and SQLite passes `length` readable bytes.
    unsafe {
        let path = file_path(file);
        if has_fault(|faults| faults.database_is_full && !is_wal(&path)) {
            return ffi::SQLITE_FULL;
        }
        let code = real_methods(file).xWrite.expect("it can write")(real_file(file), bytes, length, offset);
        if code == ffi::SQLITE_OK {
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(length).unwrap_or_default());
            record(SqliteFileChange::Write { path, offset: offset.cast_unsigned(), bytes: bytes.to_vec() });
        }
        code
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file was opened by `open`.
    unsafe {
        let code = real_methods(file).xTruncate.expect("it can truncate")(real_file(file), size);
        if code == ffi::SQLITE_OK {
            record(SqliteFileChange::Truncate { path: file_path(file), size: size.cast_unsigned() });
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file was opened by `open`.
    unsafe {
        let path = file_path(file);
        let fails = has_fault(|faults| if is_wal(&path) { faults.wal_sync_fails } else { faults.database_sync_fails });
        if fails {
            return ffi::SQLITE_IOERR_FSYNC;
        }
        let code = real_methods(file).xSync.expect("it can sync")(real_file(file), flags);
        if code == ffi::SQLITE_OK {
            record(SqliteFileChange::Sync { path });
        }
        code
    }
}

/// Defines functions that only pass an operation on.
macro_rules! pass_on {
    ($($name:ident => $method:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($argument: $kind),*) -> $result {
            // SAFETY: the file was opened by `open`, and the arguments are passed on as SQLite gave them.
            unsafe { real_methods(file).$method.expect("the system supports it")(real_file(file), $($argument),*) }
        }
    )*};
}

pass_on! {
    read => xRead(bytes: *mut c_void, length: c_int, offset: ffi::sqlite3_int64) -> c_int;
    file_size => xFileSize(size: *mut ffi::sqlite3_int64) -> c_int;
    lock => xLock(level: c_int) -> c_int;
    unlock => xUnlock(level: c_int) -> c_int;
    check_reserved_lock => xCheckReservedLock(result: *mut c_int) -> c_int;
    file_control => xFileControl(operation: c_int, argument: *mut c_void) -> c_int;
    sector_size => xSectorSize() -> c_int;
    device_characteristics => xDeviceCharacteristics() -> c_int;
    shm_map => xShmMap(page: c_int, size: c_int, extend: c_int, address: *mut *mut c_void) -> c_int;
    shm_lock => xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier => xShmBarrier() -> ();
    shm_unmap => xShmUnmap(delete: c_int) -> c_int;
}
