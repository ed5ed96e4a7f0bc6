"""Says texts with libespeak-ng and writes sound and word events: the truth of the quality test.

Reads lines of JSON {"voice", "text"} from standard input, writes lines of JSON {"rate", "pcm", "words"} to standard
output: pcm is base64 of 16-bit samples, words holds [character position from 0, length, sample].
"""

import base64
import ctypes
import json
import sys


class Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_byte * 8),
    ]


AUDIO_OUTPUT_SYNCHRONOUS, CHARS_UTF8, POS_CHARACTER, WORD, RATE = 2, 1, 1, 1, 1
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))

library = ctypes.CDLL("libespeak-ng.so.1")
rate = library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, None, 0)
if rate <= 0:
    sys.exit("libespeak-ng has no voice data")
sound, words = bytearray(), []


@CALLBACK
def collect(samples, count, events):
    if samples and count > 0:
        sound.extend(ctypes.string_at(samples, 2 * count))
    index = 0
    while events[index].type != 0:
        event = events[index]
        if event.type == WORD:
            words.append([event.text_position - 1, event.length, event.sample])
        index += 1
    return 0


library.espeak_SetSynthCallback(collect)
library.espeak_SetParameter(RATE, 165, 0)
for line in sys.stdin:
    request = json.loads(line)
    if library.espeak_SetVoiceByName(request["voice"].encode()) != 0:
        sys.exit(f"no voice {request['voice']}")
    sound.clear()
    words.clear()
    text = request["text"].encode()
    library.espeak_Synth(text, len(text) + 1, 0, POS_CHARACTER, 0, CHARS_UTF8, None, None)
    library.espeak_Synchronize()
    answer = {"rate": rate, "pcm": base64.b64encode(bytes(sound)).decode(), "words": words}
    print(json.dumps(answer), flush=True)
