// Command cbt-rows makes aggregates of request rows: counts and histograms that may be merged without loss.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"cbt-plugins/companion/internal/aggregates"
	"cbt-plugins/companion/internal/reduce"
)

const usage = `usage: cbt-rows reduce [--job J --driver D --node N --phase P] [--offset S] [--block S] [--client C] -o OUT.aggregates INPUT...
       cbt-rows reduce [the same] [--keep ROWS.csv.zst] [--beat] -o OUT.aggregates -
       cbt-rows merge -o OUT.aggregates IN.aggregates...
       cbt-rows show FILE.aggregates...
       cbt-rows export --table counts|latency|ttfb|failed|seconds|errors FILE.aggregates...
       cbt-rows version
`

// exit statuses
const (
	done       = 0
	unwritten  = 1
	wrongUsage = 2
	unreadable = 4
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println("cbt-rows", version())
		return done
	}
	commands := map[string]func(*flag.FlagSet, []string) error{"reduce": rows, "merge": merge, "show": show, "export": export}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return wrongUsage
	}
	flags := flag.NewFlagSet("cbt-rows "+args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	err := commands[args[0]](flags, args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return done
	case errors.Is(err, errUsage):
	default:
		fmt.Fprintf(os.Stderr, "cbt-rows: %v\n", err)
	}
	switch {
	case errors.Is(err, errUsage):
		return wrongUsage
	case errors.Is(err, reduce.ErrInput):
		return unreadable
	}
	return unwritten
}

// version is that of the format and of the tool chain: binaries are built from a checkout.
func version() string {
	text := fmt.Sprint("aggregates ", aggregates.Version)
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.GoVersion
	}
	return text
}

var errUsage = errors.New("wrong usage")

// parse reads the flags; at least one argument must be left.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return errUsage
	}
	if flags.NArg() == 0 {
		return wrong("no input is named")
	}
	return nil
}

// wrong says what is wrong with the arguments.
func wrong(text string) error {
	fmt.Fprintf(os.Stderr, "cbt-rows: %s\n%s", text, usage)
	return errUsage
}

func rows(flags *flag.FlagSet, args []string) error {
	o := reduce.Options{}
	flags.StringVar(&o.Source.Job, "job", "", "")
	flags.StringVar(&o.Source.Driver, "driver", "", "")
	flags.StringVar(&o.Source.Node, "node", "", "")
	flags.StringVar(&o.Source.Phase, "phase", "", "")
	flags.StringVar(&o.Keep, "keep", "", "")
	flags.StringVar(&o.Out, "o", "", "")
	flags.BoolVar(&o.Beat, "beat", false, "")
	flags.Int64Var(&o.Block, "block", 1, "")
	flags.Func("client", "", func(name string) error { o.Client = &name; return nil })
	offset := flags.Float64("offset", 0, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	live := flags.NArg() == 1 && flags.Arg(0) == "-"
	switch {
	case o.Out == "":
		return wrong("-o is missing")
	case o.Block < 1 || o.Block > 3600:
		return wrong("--block must be 1..3600 seconds")
	case !(math.Abs(*offset) <= 1e9):
		return wrong("--offset must be a number of seconds")
	case !live && (o.Beat || o.Keep != ""):
		return wrong("--beat and --keep go with one input, -")
	case live && o.Client != nil:
		return wrong("--client goes with files")
	}
	o.Offset = int64(math.Round(*offset * 1e9))
	if live {
		// the end of a stream is the end of its input: whoever stops the generator must get all of its rows
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
		return reduce.Stream(os.Stdin, os.Stdout, &o)
	}
	return reduce.Files(flags.Args(), &o)
}

func merge(flags *flag.FlagSet, args []string) error {
	out := flags.String("o", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *out == "" {
		return wrong("-o is missing")
	}
	return aggregates.JoinFiles(*out, flags.Args())
}

func show(flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	return aggregates.Show(os.Stdout, flags.Args())
}

func export(flags *flag.FlagSet, args []string) error {
	table := flags.String("table", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if !aggregates.Exportable(*table) {
		return wrong("--table must be counts, latency, ttfb, failed, seconds or errors")
	}
	return aggregates.Export(os.Stdout, *table, flags.Args())
}
