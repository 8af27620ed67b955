package keyset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// The state file: magic | u32 length of the header | header (JSON) | for each space that is not whole its bitmap, as
// 8 bytes little endian for each 64 numbers, all of them one zstd stream | u32 CRC-32 (IEEE) of all before it.
const (
	magic       = "CBTK"
	version     = 1
	longest     = 1 << 30 // of a header
	crcLength   = 4
	fixedLength = len(magic) + 4
)

// Unknown is a number of which is not known whether it exists, and what was tried.
type Unknown struct {
	Number int64  `json:"number"`
	Op     string `json:"op"`
	Lived  bool   `json:"lived"` // it existed before
	// Silent: there was no answer, and the server may still be at it. What is seen of the object counts when it shows the
	// change; that it does not (yet) counts for a later run only.
	Silent bool `json:"silent,omitempty"`
}

// Space is what a state file knows of one space.
type Space struct {
	Name    string    `json:"name"`
	Bucket  string    `json:"bucket"`
	Prefix  string    `json:"prefix"`
	Seed    uint64    `json:"seed"` // of the sizes and contents
	N       int64     `json:"n"`    // numbers used when the fill ended
	Used    int64     `json:"used"` // greatest number given out
	Unknown []Unknown `json:"unknown,omitempty"`
	Live    *Set      `json:"-"`
}

// State is all spaces of a driver, between two runs.
type State struct {
	Runs   uint64 // so many runs have written it
	Spaces []Space
}

type header struct {
	Version int           `json:"version"`
	Runs    uint64        `json:"runs"`
	Spaces  []spaceHeader `json:"spaces"`
}

type spaceHeader struct {
	Space
	Count int64 `json:"live"`
	Whole bool  `json:"whole"` // all of 1..Used exist: no bitmap
	Words int64 `json:"words"` // of the bitmap
}

// CheckTarget tells whether Save can write to a path: renaming would replace a device by a file.
func CheckTarget(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name another file", path)
	}
	file, err := createBeside(path)
	if err != nil {
		return err
	}
	file.Close()
	return os.Remove(file.Name())
}

func createBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
}

// Save writes the state under another name and then renames it: a reader finds the old or the new one.
func (state *State) Save(path string) (err error) {
	head := header{Version: version, Runs: state.Runs}
	for _, space := range state.Spaces {
		header := spaceHeader{Space: space, Count: space.Live.Len()}
		header.Whole = header.Count == space.Used && space.Live.Last() == header.Count
		if !header.Whole {
			header.Words = (space.Live.Last() + 63) / 64
		}
		head.Spaces = append(head.Spaces, header)
	}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	file, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	sum := crc32.NewIEEE()
	out := io.MultiWriter(file, sum)
	if _, err = out.Write(binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))); err != nil {
		return err
	}
	if _, err = out.Write(text); err != nil {
		return err
	}
	packed, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	for i, space := range head.Spaces {
		if err = state.Spaces[i].Live.write(packed, space.Words); err != nil {
			return err
		}
	}
	if err = packed.Close(); err != nil {
		return err
	}
	if _, err = file.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32())); err != nil {
		return err
	}
	if err = file.Chmod(0o644); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// Load reads a state file; one that is cut off, damaged, or of another version is refused.
func Load(path string) (*State, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	state, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return state, nil
}

func parse(data []byte) (*State, error) {
	if len(data) < fixedLength+crcLength || string(data[:len(magic)]) != magic {
		return nil, errors.New("not a state file of cbt-load, or cut off")
	}
	body := data[:len(data)-crcLength]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(data[len(body):]) {
		return nil, errors.New("damaged or cut off (checksum)")
	}
	length := int64(binary.LittleEndian.Uint32(data[len(magic):]))
	if length > longest || int64(fixedLength)+length > int64(len(body)) {
		return nil, errors.New("damaged (length of the header)")
	}
	var head header
	if err := json.Unmarshal(body[fixedLength:fixedLength+int(length)], &head); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if head.Version != version {
		return nil, fmt.Errorf("version %d, this program knows %d", head.Version, version)
	}
	packed, err := zstd.NewReader(bytes.NewReader(body[fixedLength+int(length):]), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	state := &State{Runs: head.Runs}
	for _, space := range head.Spaces {
		if space.Used < 0 || space.Used > Max || space.N < 0 || space.N > Max || space.Words < 0 || space.Words > (Max+63)/64 {
			return nil, fmt.Errorf("space %s: numbers out of range", space.Name)
		}
		space.Live = &Set{}
		if space.Whole {
			space.Live.Fill(space.Used)
		} else if err := space.Live.read(packed, space.Words); err != nil {
			return nil, fmt.Errorf("space %s: %w", space.Name, err)
		}
		if space.Live.Len() != space.Count || space.Live.Last() > space.Used {
			return nil, fmt.Errorf("space %s: %d objects where %d were written", space.Name, space.Live.Len(), space.Count)
		}
		state.Spaces = append(state.Spaces, space.Space)
	}
	return state, nil
}

func (s *Set) write(out io.Writer, count int64) error {
	buffer := make([]byte, 0, words*8)
	for b := 0; count > 0; b++ {
		buffer = buffer[:0]
		for word := 0; word < words && count > 0; word, count = word+1, count-1 {
			value := uint64(0)
			if s.blocks[b] != nil {
				value = s.blocks[b][word]
			}
			buffer = binary.LittleEndian.AppendUint64(buffer, value)
		}
		if _, err := out.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) read(in io.Reader, count int64) error {
	buffer := make([]byte, words*8)
	for b := 0; count > 0; b++ {
		n := min(count, words)
		if _, err := io.ReadFull(in, buffer[:n*8]); err != nil {
			return err
		}
		// block by block, so that a header that lies cannot ask for more memory than there is data
		s.blocks = append(s.blocks, nil)
		for word := int64(0); word < n; word++ {
			if value := binary.LittleEndian.Uint64(buffer[word*8:]); value != 0 {
				if s.blocks[b] == nil {
					s.blocks[b] = new(block)
				}
				s.blocks[b][word] = value
			}
		}
		count -= n
	}
	size := 1
	for size < len(s.blocks) {
		size *= 2
	}
	s.tree = make([]int64, size+1)
	s.recount()
	return nil
}
