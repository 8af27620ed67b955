package rowout

import (
	"encoding/json"
	"io"
	"sync"
)

// Events are JSON objects, one a line. That they cannot be written is no reason to stop.
type Events struct {
	mu  sync.Mutex
	out io.Writer
}

// NewEvents writes to `out`, which several goroutines may use through it.
func NewEvents(out io.Writer) *Events { return &Events{out: out} }

// Write says one event.
func (e *Events) Write(event any) {
	text, err := json.Marshal(event)
	if err != nil {
		return
	}
	e.line(text)
}

// Say writes a message for people.
func (e *Events) Say(message string) { e.line([]byte(message)) }

func (e *Events) line(text []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out.Write(append(text, '\n'))
}
