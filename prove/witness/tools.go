package main

import (
	"archive/zip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed witness.cs
var program []byte

// wheels are the packages of PyPI that are downloaded, with what pip must know to choose the file: a program of Microsoft that contains its
// parser and model, the runtime of .NET, and a build of OpenSSL 1.1, which that runtime needs.
var wheels = [][]string{
	{"mssql-cli==1.0.0", "--platform", "manylinux1_x86_64", "--only-binary=:all:"},
	{"dotnetcore2==3.1.23"},
	{"psycopg2-binary==2.9.3", "--platform", "manylinux_2_17_x86_64", "--python-version", "3.10", "--only-binary=:all:"},
}

const runtimeVersion = "3.1.23"

// witness is the compiled program, and what it needs to run.
type witness struct{ dotnet, assembly, libraries, icu string }

// prepare downloads and compiles what is not in the folder work yet.
func prepare(ctx context.Context, work string) (*witness, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	w := &witness{
		dotnet:    filepath.Join(work, "dotnetcore2", "bin", "dotnet"),
		assembly:  filepath.Join(work, "app", "witness.dll"),
		libraries: filepath.Join(work, "psycopg2_binary.libs"),
	}
	if w.icu, err = icuVersion(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(work, "app"), 0o755); err != nil {
		return nil, err
	}
	for _, wheel := range wheels {
		if err := fetch(ctx, work, wheel); err != nil {
			return nil, fmt.Errorf("%s: %w", wheel[0], err)
		}
	}
	for _, name := range []string{"libssl", "libcrypto"} {
		found, err := filepath.Glob(filepath.Join(w.libraries, name+"-*.so.1.1"))
		if err != nil || len(found) != 1 {
			return nil, errors.Join(err, fmt.Errorf("%d files are %s", len(found), name))
		}
		link := filepath.Join(w.libraries, name+".so.1.1")
		if err := os.Symlink(filepath.Base(found[0]), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return w, compile(ctx, work, w)
}

// fetch downloads a wheel and unpacks it, once.
func fetch(ctx context.Context, work string, wheel []string) error {
	name, _, _ := strings.Cut(wheel[0], "==")
	pattern := filepath.Join(work, strings.ReplaceAll(name, "-", "_")+"-*.whl")
	if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
		return err
	}
	partial, err := os.MkdirTemp(work, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	args := append([]string{"-m", "pip", "download", "--quiet", "--no-deps", "--dest", partial}, wheel...)
	if out, err := exec.CommandContext(ctx, "python3", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("pip download: %w: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(partial, "*.whl"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("pip has downloaded %d wheels", len(found)))
	}
	if err := unpack(found[0], work); err != nil {
		return err
	}
	return os.Rename(found[0], filepath.Join(work, filepath.Base(found[0]))) // the mark that it is complete
}

// unpack unpacks a wheel, which is a zip file.
func unpack(wheel, into string) error {
	r, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer r.Close()
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range r.File {
		if f.FileInfo().IsDir() {
			continue
		}
		if err := unpackFile(root, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

func unpackFile(root *os.Root, f *zip.File) error {
	if err := root.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
		return err
	}
	from, err := f.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.OpenFile(f.Name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// compile compiles witness.cs with Mono's compiler, against the assemblies of the runtime.
func compile(ctx context.Context, work string, w *witness) error {
	tools := filepath.Join(work, "mssqlcli", "mssqltoolsservice", "bin")
	framework := filepath.Join(work, "dotnetcore2", "bin", "shared", "Microsoft.NETCore.App", runtimeVersion)
	app := filepath.Dir(w.assembly)
	assemblies, err := filepath.Glob(filepath.Join(tools, "*.dll"))
	if err != nil {
		return err
	}
	for _, file := range assemblies {
		if _, err := os.Stat(filepath.Join(framework, filepath.Base(file))); err == nil {
			continue // the runtime has its own
		}
		if err := os.Symlink(file, filepath.Join(app, filepath.Base(file))); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	source := filepath.Join(app, "witness.cs")
	if err := os.WriteFile(source, program, 0o644); err != nil {
		return err
	}
	args := []string{"-nowarn:1701,1702", "-nostdlib", "-noconfig", "-target:exe", "-out:" + w.assembly}
	for _, name := range []string{"netstandard", "System.Runtime", "System.Private.CoreLib", "System.Console", "System.Linq", "System.Collections",
		"System.Text.RegularExpressions", "System.Runtime.Extensions", "System.IO.FileSystem"} {
		args = append(args, "-r:"+filepath.Join(framework, name+".dll"))
	}
	for _, name := range []string{"Microsoft.SqlServer.TransactSql.ScriptDom", "Microsoft.SqlServer.Dac", "Microsoft.SqlServer.Dac.Extensions"} {
		args = append(args, "-r:"+filepath.Join(tools, name+".dll"))
	}
	if out, err := exec.CommandContext(ctx, "mcs", append(args, source)...).CombinedOutput(); err != nil {
		return fmt.Errorf("mcs (Debian's mono-mcs): %w: %s", err, out)
	}
	settings := `{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"}}}`
	return os.WriteFile(strings.TrimSuffix(w.assembly, ".dll")+".runtimeconfig.json", []byte(settings), 0o644)
}

// icuVersion returns the version of the machine's ICU, without which the runtime does not start.
func icuVersion() (string, error) {
	found, err := filepath.Glob("/usr/lib/*/libicuuc.so.*.*")
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, errors.New("this machine has no ICU: install Debian's libicu package"))
	}
	_, version, _ := strings.Cut(filepath.Base(found[0]), ".so.")
	return version, nil
}

// command is the compiled program.
func (w *witness) command(ctx context.Context, verb, folder string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.dotnet, w.assembly, verb, folder)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+w.libraries, "CLR_ICU_VERSION_OVERRIDE="+w.icu)
	return cmd
}
