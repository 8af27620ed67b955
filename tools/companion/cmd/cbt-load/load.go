package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cbt-plugins/companion/internal/aws"
	"cbt-plugins/companion/internal/drive"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// goPoll is how often it is looked for the file that says when to start.
const goPoll = 10 * time.Millisecond

// load is `cbt-load run`.
func load(args []string) int {
	path, goFile, help, err := runArguments(args)
	if help {
		fmt.Print(usage)
		return drive.ExitGood
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cbt-load run: %s\n%s", err, usage)
		return drive.ExitUsage
	}
	events := drive.NewEvents(os.Stderr)
	data, err := os.ReadFile(path)
	if err != nil {
		return failed(events, err.Error(), drive.ExitUsage)
	}
	orders, err := spec.Parse(data)
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			events.Say(path + ": " + line)
		}
		return failed(events, err.Error(), drive.ExitUsage)
	}
	config, err := clientConfig(orders)
	if err != nil {
		return failed(events, err.Error(), drive.ExitFailed)
	}
	// a reader of rows that has gone is an error of write, not the end of the process
	signal.Ignore(syscall.SIGPIPE)
	stop := make(chan struct{})
	stopSignals := make(chan os.Signal, 1)
	signal.Notify(stopSignals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stopSignals
		close(stop)
	}()
	users, err := usersUnless(stop, orders, config)
	if err != nil {
		return failed(events, err.Error(), drive.ExitFailed)
	}
	if os.Getenv("GOGC") == "" {
		// little is thrown away, and a load generator's pauses are latencies
		debug.SetGCPercent(400)
	}
	return drive.Run(drive.Options{
		Spec:   orders,
		Client: users,
		Cut:    users.Cut,
		Second: func() drive.Client {
			if second, err := newUsers(orders, config); err == nil {
				return second
			}
			return users
		},
		Hosts:  users.Hosts,
		Rows:   os.Stdout,
		Events: events,
		Go:     goAt(goFile),
		Stop:   stop,
		AtLast: func(d time.Duration) { time.AfterFunc(d, func() { os.Exit(drive.ExitFailed) }) },
	})
}

// usersUnless makes the clients, which look their hosts up: that takes as long as a name server does, unless it is stopped.
func usersUnless(stop <-chan struct{}, orders *spec.Spec, config s3.Config) (*users, error) {
	all, failure := make(chan *users, 1), make(chan error, 1)
	go func() {
		if u, err := newUsers(orders, config); err != nil {
			failure <- err
		} else {
			all <- u
		}
	}()
	select {
	case u := <-all:
		return u, nil
	case err := <-failure:
		return nil, err
	case <-stop:
		return nil, errors.New("stopped before its hosts were found")
	}
}

func failed(events *drive.Events, text string, status int) int {
	events.Write(map[string]string{"event": "failed", "text": text})
	return status
}

// runArguments takes the flag before or after the spec.
func runArguments(args []string) (path, goFile string, help bool, err error) {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		name, value, given := strings.Cut(word, "=")
		switch {
		case word == "-h" || word == "--help" || word == "-help":
			return "", "", true, nil
		case name == "--go" || name == "-go":
			if !given {
				if len(args) == 0 {
					return "", "", false, errors.New("--go needs a file")
				}
				value, args = args[0], args[1:]
			}
			goFile = value
		case strings.HasPrefix(word, "-") && word != "-":
			return "", "", false, fmt.Errorf("%s is no option", word)
		case path != "":
			return "", "", false, errors.New("more than one spec")
		default:
			path = word
		}
	}
	if path == "" {
		return "", "", false, errors.New("which spec?")
	}
	if path == "-" {
		path = "/dev/stdin"
	}
	return path, goFile, false, nil
}

func clientConfig(orders *spec.Spec) (s3.Config, error) {
	var encryption s3.Encryption
	switch orders.Encryption {
	case "c":
		key, err := base64.StdEncoding.DecodeString(os.Getenv("CBT_LOAD_SSE_KEY"))
		if err != nil || len(key) != 32 {
			return s3.Config{}, errors.New("CBT_LOAD_SSE_KEY must be 32 bytes in base64")
		}
		encryption = s3.ByCustomer(key)
	case "s3", "kms":
		encryption = s3.ByServer(orders.KMSKey)
	}
	keys, err := aws.FindKeys()
	if err != nil {
		return s3.Config{}, err
	}
	return s3.Config{
		Hosts:       orders.Hosts,
		RoundRobin:  orders.RoundRobin,
		Region:      orders.Region,
		AccessKey:   keys.Access,
		SecretKey:   keys.Secret,
		Session:     keys.Session,
		HostStyle:   orders.HostStyle,
		InsecureTLS: !orders.VerifyTLS,
		Unsigned:    orders.Unsigned,
		Workers:     orders.Workers,
		PartSize:    orders.PartSize,
		Encryption:  encryption,
	}, nil
}

// goAt waits for the file, and then until what it says; nil without a file.
func goAt(path string) func(<-chan struct{}) (time.Time, bool) {
	if path == "" {
		return nil
	}
	return func(stop <-chan struct{}) (time.Time, bool) {
		ticker := time.NewTicker(goPoll)
		defer ticker.Stop()
		before := ""
		for {
			data, err := os.ReadFile(path)
			text := strings.TrimSpace(string(data))
			// the same twice: a file that is being written may lack its last digits
			if at, good := instant(text); err == nil && good && text == before {
				return at, true
			}
			before = text
			select {
			case <-stop:
				return time.Time{}, false
			case <-ticker.C:
			}
		}
	}
}

// instant is an epoch on this node's clock, also on its monotonic one.
func instant(text string) (time.Time, bool) {
	epoch, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(epoch) || math.Abs(epoch) > 1e11 {
		return time.Time{}, false
	}
	now := time.Now()
	return now.Add(time.Duration(epoch*1e9) - time.Duration(now.UnixNano())), true
}
