// cbt-load makes load on objects that exist: rows on stdout, events on stderr. See docs/CBT-LOAD.md.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"cbt-plugins/companion/internal/drive"
	"cbt-plugins/companion/internal/nulls3"
	"cbt-plugins/companion/internal/spec"
)

const usage = `usage: cbt-load run SPEC.json [--go FILE]    make the load that SPEC.json describes
       cbt-load null [-h | OPTIONS] [-- PROGRAM ARGUMENT...]   an S3 server that keeps nothing, to measure a generator
                                             against; as long as PROGRAM runs, if there is one
       cbt-load version

run: rows on stdout (tab separated: ` + "`cbt-rows show`" + ` makes a table of them), events on stderr.
  --go FILE   get ready, say so, and start at the epoch that FILE holds once it is there
keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN in the environment, else those of the profile
  AWS_DEFAULT_PROFILE, else AWS_PROFILE (default: default) in ~/.aws/credentials and ~/.aws/config, as the AWS CLI reads
  them
exit status: 0 ran to its end or was told to stop, 1 failed, 2 usage or errors in the spec

A spec for ten seconds of load on 1000 objects that the same driver has written (state_out of that run):
  {"version": 1, "hosts": ["http://localhost:7480"], "workers": 8, "duration": 10,
   "state_in": "fill.state", "state_out": "fill.state",
   "spaces": [{"name": "4KiB", "bucket": "b", "prefix": "try/", "sizes": [[4096, 4096, 1]]}],
   "ops": [{"op": "GET", "share": 70, "spaces": ["4KiB"]}, {"op": "PUT", "share": 30, "spaces": ["4KiB"]}]}
and the fill: "objects": 1000, "sets_n": true, no state_in, no duration, PUT alone. docs/CBT-LOAD.md has the rest.
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return drive.ExitUsage
	}
	switch args[0] {
	case "run":
		return load(args[1:])
	case "null":
		return nulls3.Main(args[1:])
	case "version":
		fmt.Println("cbt-load", version(), "spec", spec.Version)
		return drive.ExitGood
	case "-h", "--help", "help":
		fmt.Print(usage)
		return drive.ExitGood
	}
	fmt.Fprintf(os.Stderr, "cbt-load: %q is no command\n%s", args[0], usage)
	return drive.ExitUsage
}

// version is that of the tool chain and the module: binaries are built from a checkout.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version + " " + info.GoVersion
	}
	return "unknown"
}
