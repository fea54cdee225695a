package doctor

import "syscall"

// networks are network file systems, by their numbers (statfs(2)).
var networks = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x01021997: "9P", 0x00c36400: "Ceph",
	0x5346414f: "AFS", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x01161970: "GFS2", 0x7461636f: "OCFS2",
}

// fileSystem returns the network file system of a file, or "" for a local disk, according to its number.
// known is false if that cannot be determined.
var fileSystem = func(file string) (network string, known bool) {
	var of syscall.Statfs_t
	if syscall.Statfs(file, &of) != nil {
		return "", false
	}
	return networks[uint32(of.Type)], true
}
