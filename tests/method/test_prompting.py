from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide, builtin_guides
from selpe.method.prompting import PromptWriter
from selpe.method.record_forms import Fact
from selpe.models import Answer, Capabilities, Request
from selpe.models.fake import FakeModel
from selpe.schema import Schema, Span
from small_world import SCHEMA, UNLABELLED, drawn

# Three examples of each class.
RICH = replace(SCHEMA, examples=(*SCHEMA.examples, *drawn(4)))
SMALL_MODEL, LARGE_MODEL = ("smollm", Capabilities(grammar=True)), ("large", Capabilities(chat_template=True))
FACTS: tuple[tuple[str, Fact], ...] = (("topic", "lost key"), ("minutes", Span(20, 30)))


def text_of(said: dict[str, Any]) -> str:
    return said.get("prompt") or "\n".join(message.content for message in said["messages"])


def opening(schema: Schema, proposal: Proposal, staged: bool = True, **fixed: Fact) -> str:
    label = {} if proposal.label is None else {"urgency": proposal.label}
    return text_of(PromptWriter(schema, staged=staged).opening(proposal, label | dict(proposal.facts) | fixed))


@pytest.mark.parametrize("model", [SMALL_MODEL, LARGE_MODEL])
@pytest.mark.parametrize("staged", [True, False])
def test_all_classes_guides_facts_and_exemplars_begin_alike(model: tuple[str, Capabilities], staged: bool) -> None:
    guides = builtin_guides(RICH, *model)
    good, bad = drawn(2, offset=500)
    prompts = [
        opening(RICH, Proposal(guide, seed, label=label, facts=facts, positives=shown[:1], negatives=shown[1:]), staged)
        for guide in guides
        for label in RICH.labels
        for seed in range(3)
        for facts in ((), FACTS)
        for shown in ((), (good, bad))
    ]
    bare = opening(RICH, Proposal(replace(guides[0], shots=0), 0, label="low"), staged)
    shared = next(
        prompts[0][:end]
        for end in range(len(prompts[0]), 0, -1)
        if all(one.startswith(prompts[0][:end]) for one in prompts)
    )
    examples = RICH.examples[:2]
    assert all(str(one["topic"]) in shared for one in examples)
    assert len(shared) > 0.8 * len(bare) - 300  # all but the last question


@pytest.mark.parametrize("family", ["document", "chat"])
def test_stage_two_goes_on_where_stage_one_stopped(family: Any) -> None:
    proposal = Proposal(Guide("any", family=family), 1, label="low", facts=FACTS)
    prompts, fixed = PromptWriter(RICH, staged=True), {"urgency": "low", **dict(FACTS)}
    first, second = prompts.opening(proposal, fixed), prompts.record(proposal, fixed, "topic: a thing; it was red")
    if family == "document":
        assert second["prompt"] == f"{first['prompt']} topic: a thing; it was red\nRecord:\n"
    else:
        assert second["messages"][0] == first["messages"][0]
        assert [message.role for message in second["messages"]] == ["user", "assistant", "user"]
        assert second["messages"][1].content == "topic: a thing; it was red"
        assert "topic lost key" in second["messages"][2].content


def test_examples_of_the_class_stand_last_and_the_seed_says_which() -> None:
    low = [record for record in RICH.examples if RICH.label_of(record) == "low"][1:]
    assert len(low) > 1
    ends = {seed: opening(RICH, Proposal(Guide("one"), seed, label="low")).rsplit("\n\n", 2)[1] for seed in range(4)}
    assert {end.partition("Notes: topic: ")[2].partition(";")[0] for end in ends.values()} == {
        str(one["topic"]) for one in low
    }
    assert ends[0] != ends[1]


def test_exemplars_take_the_place_of_examples_of_the_class() -> None:
    good = {**drawn(1, offset=500)[0], "topic": "GOODMARK"}
    proposal = Proposal(Guide("one", shots=1), 0, label="low", positives=(good,))
    last = opening(RICH, proposal).rsplit("\n\n", 2)
    assert "GOODMARK" in last[1]
    assert all(str(one["topic"]) not in last[0] for one in RICH.examples[2:])


def test_a_schema_without_examples_or_label_has_prompts_too() -> None:
    bare = replace(UNLABELLED, examples=())
    assert opening(bare, Proposal(Guide("any"), 0)).endswith("Entry:\nNotes:")
    assert opening(UNLABELLED, Proposal(Guide("any"), 0)).count("Notes: topic: ") == 2


class Keeping(FakeModel):
    """Keeps requests in the order in which they leave."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request)
        return super()._answer(request)


def test_requests_leave_in_an_order_in_which_neighbours_begin_alike() -> None:
    guides = [Guide("one"), Guide("two", text="Be brief.")]
    mixed = [Proposal(guides[i // 4 % 2], i // 2 % 2, label=SCHEMA.labels[i % 2]) for i in range(24)]
    model = Keeping()
    made = Generator(model, RICH).generate(mixed)
    first = [request.prompt for request in model.asked if request.stage == "I"]
    changes = sum(one != other for one, other in pairwise(first))
    assert changes + 1 == len(set(first)) > 4
    assert [one.proposal for one in made.candidates if one] == mixed


def test_the_first_records_do_not_wait_behind_all_contexts() -> None:
    class Wide(Keeping):
        """Takes all that it can get before it answers."""

        def generate(self, requests: Any, **more: Any) -> Any:
            return super().generate(iter(list(requests)), **more)

    model = Wide()
    Generator(model, SCHEMA).generate([Proposal(Guide("one"), seed, label="low") for seed in range(60)])
    stages = [request.stage for request in model.asked]
    assert stages.index("II") <= 4


@pytest.mark.parametrize("family", ["document", "chat"])
@pytest.mark.parametrize("staged", [True, False])
def test_a_class_that_is_not_told_is_in_no_request_but_in_every_record(family: Any, staged: bool) -> None:
    schema = replace(RICH, examples=tuple(one for one in RICH.examples if one["urgency"] == "low"))
    told = Proposal(Guide("any", family=family, form="json"), 1, label="high", facts=FACTS)
    asked: list[Request] = []

    class Watching(FakeModel):
        def generate(self, requests: Any, **more: Any) -> Any:
            follow = more.pop("follow")

            def noted(answer: Answer) -> Any:
                asked.append(answer.request)
                return follow(answer)

            return super().generate(requests, follow=noted, **more)

    for proposal in (told, replace(told, class_told=False)):
        asked.clear()
        generator = Generator(Watching(), schema, stages=2 if staged else 1)
        (made,) = generator.generate([proposal]).candidates
        assert made is not None
        assert made.record["urgency"] == "high"
        said = [one.prompt or "".join(message.content for message in one.messages) for one in asked]
        heard = [text for text in said if "urgency high" in text.lower()]
        assert bool(heard) == proposal.class_told
