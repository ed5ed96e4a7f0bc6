#!/usr/bin/env python3
"""Trains the tokenizer of the `tiny` model preset: configs/model/tiny.tokenizer.model.

Usage: python3 make_tiny_tokenizer.py OUTPUT.model      (needs sentencepiece==0.2.1)

The text is generated from a small grammar of pharmacy and insurance phone calls with a fixed seed, so the same version of
sentencepiece writes the same model. Byte fallback covers whatever the pieces do not; tags such as <system> and
<context> are ordinary text, as in the published model. Ids: 0 unk, 1 bos, 2 eos, 3 pad.
"""
import io
import random
import sys

import sentencepiece

VOCAB = 1024
SENTENCES = 8000

FIRST = "Alex Maria James Linda Robert Susan Omar Priya Daniel Grace Hannah Victor Nina Carlos Emily Walter".split()
LAST = "Carter Nguyen Patel Johnson Garcia Miller Lopez Brown Davis Wilson Khan Rossi Meyer Okafor Silva Young".split()
DRUGS = "metformin lisinopril atorvastatin levothyroxine amlodipine sertraline omeprazole albuterol insulin warfarin".split()
POLICIES = ["general liability", "commercial property", "workers compensation", "cyber", "business auto", "umbrella"]
SYMPTOMS = ["a dry cough", "an upset stomach", "some dizziness", "a headache", "trouble sleeping", "a mild rash"]
MONTHS = "January February March April May June July August September October November December".split()

WORDS = """
about account address after again agent allergy alternative amount answer anything appointment approved assistant
auto available back because before benefit best better billing birth blood bottle breakfast brief broker brokerage building
business calendar calling calm cannot care carrier caller certificate change check claim claims client clinic commercial
company concern concerned condition confirm consider contact continue contractor copay cost could coverage current customer
daily date deductible delivery details did difference different directive discount discuss doctor dosage dose doses driver
during early effective email employee end endorsement evening every everything exclusion explain facility feel feeling fill
filled finally find first fleet follow friendly general generic getting give glad goal going good great handle happen health
hear help history hold home hospital hour house identity important include increase information insurance insured interested
issue keep know known last late later less liability limit limits line list little location looking loss lower made mail
make manager market matter may mean medical medication medicine meeting message midnight minute missed missing month monthly
more morning move name need never new next night note nothing notice number offer office often okay only open option order
other owner package paid partner patient payment payroll perfect permission pharmacist pharmacy phone pick pickup plan please
policy possible prefer premium prescription prevent previous price prior probably problem process property provider question
questions quick quote quoted rate ready really reason recent record recorded recording refill reminder renew renewal repeat
replace report request required response restaurant review revenue right risk safe safety same schedule secure send sent
service several share short should side effect effects simple since small someone something soon sorry sound specific speak
speaking start status still stock store supply support suppose sure surgery switch symptom system table take taken taking
talk tell terms thank thanks their them then there these they thing think those though thought through time today together
tomorrow total transfer treatment trouble try underwriter understand until update upset urgent usual value verify visit voice
wait want warehouse was week weekly weekend well were what when where which while will with within without wonder work
worker workers working worried would write year years yesterday yet your yourself
""".split()

TEMPLATES = [
    "Hi, this is {first} calling from the pharmacy care team. Am I speaking with {first2} {last}?",
    "Yes, this is {first}. What is this about?",
    "This call may be recorded, and I am an automated care assistant.",
    "Before we continue, can you confirm your date of birth, please?",
    "It is {month} {day}, {year}.",
    "Our records show your {drug} refill was due on {month} {day}.",
    "I have been taking {n} milligrams of {drug} every morning with food.",
    "I missed a few doses last week because of {symptom}.",
    "I am sorry to hear that. Have you talked to your doctor about {symptom}?",
    "I can't give medical advice, but I can send a note to your pharmacist.",
    "Your copay would be ${dollars}.{cents} for a {n}-day supply.",
    "Okay, let's go ahead and schedule the refill for {month} {day}.",
    "Hello, {first}, this is {first2} with the brokerage. I'm calling about your {policy} renewal.",
    "The premium went up {pct}% this year, from ${thousands},{hundreds} to ${thousands2},{hundreds2}.",
    "Why is it going up so much? We didn't have any claims.",
    "Your {policy} policy, number {code}-{num}, renews on {month} {day}, {year}.",
    "The carrier raised the deductible to ${thousands},000 and the limit is ${n} million.",
    "Could you email me the quote? I need to talk to my partner first.",
    "Sure, I will send that over today, and we can talk again on {weekday}.",
    "Um, I'm not sure about that. Let me check and get back to you.",
    "Right, that makes sense. Uh-huh. Got it. Thank you so much!",
    "Is there anything else I can help you with today?",
    "No, that's all. Thanks for calling. Have a good day, goodbye.",
    "<system> ROLE: You are {first}, a care assistant. CLIENT: {first2} {last}, age {n}. <system>",
    "KNOWN: The copay is ${dollars}. The last refill was on {month} {day}. UNKNOWN: reason for the missed doses.",
    "GOAL: Confirm the refill and note any side effects. STYLE: calm, brief, friendly. RELATIONSHIP: returning client.",
    "<context> Tell the client: the new premium is ${thousands},{hundreds}, effective {month} {day}. </context>",
    "<context> Mention that {drug} {n} mg is in stock and costs ${dollars}.{cents}. </context>",
    "{num} {code} {n}% ${thousands},{hundreds} {dollars}:{cents} ({pct}) #{n} & {n}/{pct}",
]


def sentence(rng):
    if rng.random() < 0.25:
        line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 12)))
        return line[0].upper() + line[1:] + rng.choice([".", "?", ",", "!"])
    return rng.choice(TEMPLATES).format(
        first=rng.choice(FIRST), first2=rng.choice(FIRST), last=rng.choice(LAST), drug=rng.choice(DRUGS),
        policy=rng.choice(POLICIES), symptom=rng.choice(SYMPTOMS), month=rng.choice(MONTHS), day=rng.randint(1, 31),
        year=rng.randint(1940, 2027), n=rng.choice([5, 10, 20, 30, 40, 60, 90]), pct=rng.randint(2, 48),
        dollars=rng.randint(3, 99), cents=rng.randint(10, 99), thousands=rng.randint(1, 48),
        hundreds=rng.randint(100, 999), thousands2=rng.randint(1, 48), hundreds2=rng.randint(100, 999),
        code=rng.choice(["GL", "CP", "WC", "RX"]), num=rng.randint(10000, 99999),
        weekday=rng.choice(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]))


def main(path):
    rng = random.Random(20260701)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([sentence(rng) for _ in range(SENTENCES)]), model_writer=model,
        model_type="unigram", vocab_size=VOCAB, byte_fallback=True, character_coverage=1.0,
        unk_id=0, bos_id=1, eos_id=2, pad_id=3, normalization_rule_name="identity",
        add_dummy_prefix=True, remove_extra_whitespaces=False, split_digits=True, num_threads=1,
        shuffle_input_sentence=False, minloglevel=1)
    with open(path, "wb") as out:
        out.write(model.getvalue())


if __name__ == "__main__":
    main(sys.argv[1])
