package doctor

import (
	"context"
	"errors"
)

func checkJournal(ctx context.Context, x *examination) (verdict, error) {
	journal, err := x.lite.Pragma(ctx, "journal_mode")
	if err != nil {
		return verdict{}, err
	}
	synchronous, err := x.lite.Pragma(ctx, "synchronous")
	switch {
	case err != nil:
		return verdict{}, err
	case journal == "off", journal == "memory":
		return fail("PRAGMA journal_mode = WAL;", "journal_mode is %s: a crash damages the file", journal), nil
	case synchronous == "0", synchronous == "1":
		return warn("run PRAGMA synchronous = FULL on each connection", "synchronous is %s: a power failure loses the last commits", synchronous), nil
	case journal != "wal":
		return warn("PRAGMA journal_mode = WAL;", "journal_mode is %s: readers and the writer wait for each other", journal), nil
	}
	return ok("journal_mode is wal, and synchronous is %s", synchronous), nil
}

func checkIntegrity(ctx context.Context, x *examination) (verdict, error) {
	_, bytes, err := x.lite.File(ctx)
	if err != nil {
		return verdict{}, err
	}
	fault, err := x.lite.Integrity(ctx)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return skip("checking "+size(bytes)+" takes longer than --timeout", "--only integrity --timeout 10m"), nil
	case err != nil:
		return fail("restore a backup, or run sqlite3 FILE .recover", "%v", err), nil
	case fault != "":
		return fail("restore a backup, or run sqlite3 FILE .recover", "%s", oneLine(fault, 200)), nil
	}
	return ok("no damage in %s", size(bytes)), nil
}

func checkFileSystem(ctx context.Context, x *examination) (verdict, error) {
	path, _, err := x.lite.File(ctx)
	if err != nil {
		return verdict{}, err
	}
	number, known := fileSystem(path)
	if !known {
		return skip("this operating system does not report the file system of "+path, ""), nil
	}
	return judgeFileSystem(path, number), nil
}

func judgeFileSystem(path string, number uint32) verdict {
	if name := networkFileSystems[number]; name != "" {
		return fail("move the file to a disk of this machine", "%s is on a network file system (%s)", path, name)
	}
	return ok("the file is on a disk of this machine")
}
