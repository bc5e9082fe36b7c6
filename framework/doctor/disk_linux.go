package doctor

import "syscall"

// diskOf returns the free and the total bytes of a path's file system.
func diskOf(path string) (free, all int64, known bool) {
	var s syscall.Statfs_t
	if path == "" || syscall.Statfs(path, &s) != nil {
		return 0, 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), true
}

// networkFileSystems has the types of statfs(2) that are network file systems.
var networkFileSystems = map[uint32]string{
	0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x517b: "SMB", 0x00c36400: "Ceph", 0x01021997: "9P",
	0x0bd00bd0: "Lustre", 0x5346414f: "AFS", 0x01161970: "GFS2", 0x47504653: "GPFS",
}

// fileSystem returns the type of a path's file system, as statfs(2) numbers it.
func fileSystem(path string) (number uint32, known bool) {
	var s syscall.Statfs_t
	if path == "" || syscall.Statfs(path, &s) != nil {
		return 0, false
	}
	return uint32(s.Type), true
}
