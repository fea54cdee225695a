package demo

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// entry is one name in the folder: a file to send, or one that is skipped.
type entry struct {
	file
	skipped string // why; "" for a file to send
}

// maxPath is the most bytes of a path that the ledger stores.
const maxPath = 3000

// walk lists the folder in the order of names. Everything except readable regular files is listed
// as skipped, with the reason.
func walk(ctx context.Context, root *os.Root, own []string) ([]entry, error) {
	var entries []entry
	var ownInfo []fs.FileInfo
	for _, name := range own {
		if info, err := os.Stat(name); err == nil {
			ownInfo = append(ownInfo, info)
		}
	}
	err := fs.WalkDir(root.FS(), ".", func(path string, item fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil && path == ".":
			return err
		case err != nil: // a folder that cannot be read
			entries = append(entries, entry{file: file{Path: printable(path)}, skipped: reason(err)})
			return fs.SkipDir
		case item.IsDir():
			if info, err := item.Info(); err == nil && slices.ContainsFunc(ownInfo, func(own fs.FileInfo) bool { return os.SameFile(own, info) }) {
				return fs.SkipDir
			}
			return nil
		}
		entries = append(entries, look(root, path, item, ownInfo))
		return nil
	})
	return entries, err
}

func look(root *os.Root, path string, item fs.DirEntry, own []fs.FileInfo) entry {
	e := entry{file: file{Path: path}}
	if !utf8.ValidString(path) {
		e.Path, e.skipped = printable(path), "the name is not UTF-8"
		return e
	}
	if len(path) > maxPath {
		e.Path, e.skipped = strings.ToValidUTF8(path[:maxPath], ""), "the path is too long"
		return e
	}
	if e.skipped = kind(item.Type()); e.skipped != "" {
		return e
	}
	// Opening the file shows whether it is readable. A worker compares the time and size later.
	f, err := root.Open(path)
	if err != nil {
		e.skipped = reason(err)
		return e
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		e.skipped = reason(err)
		return e
	}
	for _, o := range own {
		if os.SameFile(o, info) {
			e.skipped = "it is the queue's own file"
			return e
		}
	}
	e.Size, e.Mtime = info.Size(), info.ModTime().UnixNano()
	return e
}

// kind returns the type of a file that is not regular.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	default:
		return "not a regular file"
	}
}

// printable returns the path itself, unless the database could not store it as text.
func printable(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.QuoteToASCII(path)
}
