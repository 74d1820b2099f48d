"""The verbs and modals of the built-in corpus, as data.

A verb row reads: English forms | German forms | who does it | frame and what it is done to.
English: base [past participle], or only the base when regular. German: infinitive ('·' after a
separable prefix), er-form, participle, 'sein' when the perfect takes it. The frame names the
complements, see kutta.demo.grammar.frames.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kutta.demo.grammar.lexicon import nouns_of
from kutta.demo.grammar.morphology import (
    ACC,
    DAT,
    FourForms,
    GermanVerb,
    Noun,
    english_ing,
    english_past,
    english_third,
    german_verb,
)

ACTIONS = """
read read read | lesen liest gelesen | people | doing text
write wrote written | schreiben schreibt geschrieben | people | doing letter story poem novel
buy bought bought | kaufen kauft gekauft | people | doing goods edible
sell sold sold | verkaufen verkauft verkauft | people | object goods food
eat ate eaten | essen isst gegessen | people | doing edible
eat ate eaten | fressen frisst gefressen | animals | object apple carrot potato bread meat sausage
drink drank drunk | trinken trinkt getrunken | people | doing drink
cook | kochen kocht gekocht | people | object soup potato egg rice meat
order | bestellen bestellt bestellt | people | object edible drink
wash | waschen wäscht gewaschen | people | object clothing plate cup car window
clean | putzen putzt geputzt | people | object window door shoe kitchen bathroom
repair | reparieren repariert repariert | people | object vehicle device roof door
look_for | suchen sucht gesucht | people | doing thing people animal
visit | besuchen besucht besucht | people | object people museum castle church
draw drew drawn | zeichnen zeichnet gezeichnet | people | doing animals building plant
carry | tragen trägt getragen | people | object thing
catch caught caught | fangen fängt gefangen | cat dog wolf bear | object mouse bird rabbit duck
feed fed fed | füttern füttert gefüttert | people | object animal
hide hid hidden | verstecken versteckt versteckt | people | object thing text
greet | begrüßen begrüßt begrüßt | people | doing people
ask | fragen fragt gefragt | people | object people
photograph | fotografieren fotografiert fotografiert | people | doing sight animals
invite | ein·laden lädt geladen | people | object people
call | an·rufen ruft gerufen | people | object people
pick_up | ab·holen holt geholt | people | object people
open | auf·machen macht gemacht | people | object openable
close | zu·machen macht gemacht | people | object openable
turn_on | an·machen macht gemacht | people | object switchable
turn_off | aus·machen macht gemacht | people | object switchable
put_on put_on put_on | an·ziehen zieht gezogen | people | object clothing
take_off took_off taken_off | aus·ziehen zieht gezogen | people | object clothing
bring_along brought_along brought_along | mit·bringen bringt gebracht | people | object edible thing
throw_away threw_away thrown_away | weg·werfen wirft geworfen | people | object thing text clothing
tidy_up | auf·räumen räumt geräumt | people | object room cupboard shelf
eat_up ate_up eaten_up | auf·essen isst gegessen | people | object food dish
look_at | an·schauen schaut geschaut | people | object picture sight animals
prepare | vor·bereiten bereitet bereitet | people | object meal party trip wedding concert
pack | ein·packen packt gepackt | people | object clothing book gift camera umbrella
give_back gave_back given_back | zurück·geben gibt gegeben | people | object text thing device
help | helfen hilft geholfen | people | receiver people
thank | danken dankt gedankt | people | receiver people
answer | antworten antwortet geantwortet | people | receiver people
follow | folgen folgt gefolgt sein | living | receiver people animal
congratulate | gratulieren gratuliert gratuliert | people | receiver people
listen_to | zu·hören hört gehört | people | receiver people
give gave given | geben gibt gegeben | people | give portable food
show showed shown | zeigen zeigt gezeigt | people | give portable clothing
bring brought brought | bringen bringt gebracht | people | give portable edible drink
send sent sent | schicken schickt geschickt | people | give text gift picture
lend lent lent | leihen leiht geliehen | people | give book vehicle camera umbrella pen
tell told told | erzählen erzählt erzählt | people | give story
sleep slept slept | schlafen schläft geschlafen | living | where
laugh | lachen lacht gelacht | people | where loudly quietly
cry | weinen weint geweint | people | where loudly quietly
work | arbeiten arbeitet gearbeitet | people | where slowly quickly carefully
dance | tanzen tanzt getanzt | people | where slowly quickly
sing sang sung | singen singt gesungen | people bird | where loudly quietly
play | spielen spielt gespielt | youth animal | where quietly
wait | warten wartet gewartet | people | where quietly
bark | bellen bellt gebellt | dog | where loudly
watch_television | fern·sehen sieht gesehen | people | where
sit sat sat | sitzen sitzt gesessen | people cat dog | sit
wait_for | warten wartet gewartet | people | about auf:acc people bus train taxi
think_of thought_of thought_of | denken denkt gedacht | people | about an:acc people trip exam
talk_about | sprechen spricht gesprochen | people | about über:acc people text event
laugh_at | lachen lacht gelacht | people | about über:acc people monkey story
dream_of | träumen träumt geträumt | people | about von:dat people sight trip
talk_to | sprechen spricht gesprochen | people | about mit:dat people
play_with | spielen spielt gespielt | youth | about mit:dat animal ball doll
dance_with | tanzen tanzt getanzt | people | about mit:dat people
go went gone | gehen geht gegangen sein | people | to place
run ran run | laufen läuft gelaufen sein | people | to place
run ran run | laufen läuft gelaufen sein | animals | to outdoors river lake
drive drove driven | fahren fährt gefahren sein | people | to spot city village
fly flew flown | fliegen fliegt geflogen sein | people | city
travel | reisen reist gereist sein | people | city
lay laid laid | legen legt gelegt | people | put lying
put put put | stellen stellt gestellt | people | put standing
hang hung hung | hängen hängt gehängt | people | hang hanging
"""

# Momentary or felt: no English progressive.
INSTANTS = """
find found found | finden findet gefunden | people | doing thing text animal
see saw seen | sehen sieht gesehen | living | object people animals vehicle
hear heard heard | hören hört gehört | people | object people animal train
forget forgot forgotten | vergessen vergisst vergessen | people | object thing text
lose lost lost | verlieren verliert verloren | people | object thing text camera
wake_up woke_up woken_up | auf·wachen wacht gewacht sein | living | where
get_up got_up gotten_up | auf·stehen steht gestanden sein | people | nothing
fall_asleep fell_asleep fallen_asleep | ein·schlafen schläft geschlafen sein | living | where
arrive | an·kommen kommt gekommen sein | people train bus ship | arrive
come_back came_back come_back | zurück·kommen kommt gekommen sein | living | nothing
depart | ab·fahren fährt gefahren sein | train bus ship truck | nothing
"""

# Lasting: only the simple present.
STATES = """
love | lieben liebt geliebt | people | object people animal
know knew known | kennen kennt gekannt | people | object people sight story
need | brauchen braucht gebraucht | people | object thing device clothing vehicle
have had had | haben hat gehabt | people | object thing device animal vehicle text
understand understood understood | verstehen versteht verstanden | people | object people text
trust | vertrauen vertraut vertraut | people | receiver people
belong_to | gehören gehört gehört | goods | receiver people
live | wohnen wohnt gewohnt | people | home
come_from came_from come_from | kommen kommt gekommen sein | people | origin
cost cost cost | kosten kostet gekostet | text thing device clothing | price
lie lay lain | liegen liegt gelegen | lying | lie
stand stood stood | stehen steht gestanden | standing | lie
be was been | sein ist gewesen sein | living goods room building drink dish | quality
"""

REPORTS = """
say said said | sagen sagt gesagt | people | nothing
believe | glauben glaubt geglaubt | people | nothing
hope | hoffen hofft gehofft | people | nothing
think thought thought | denken denkt gedacht | people | nothing
know knew known | wissen weiß gewusst | people | nothing
"""
INQUIRIES = """
ask | fragen fragt gefragt | people | nothing
"""
ATTEMPTS = """
try | versuchen versucht versucht | people | nothing
forget forgot forgotten | vergessen vergisst vergessen | people | nothing
promise | versprechen verspricht versprochen | people | nothing
begin began begun | an·fangen fängt gefangen | people | nothing
"""
WEATHER_VERBS = """
rain | regnen regnet geregnet | it | nothing
snow | schneien schneit geschneit | it | nothing
"""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """An English verb, its German counterpart and what may stand around it."""

    en: tuple[str, str, str, str, str]  # base, third person, past, participle, -ing
    de: GermanVerb
    aspect: str  # action, instant, state
    subjects: tuple[Noun, ...]
    frame: str
    objects: tuple[Noun, ...]
    manners: tuple[str, ...] = ()
    preposition: str = ""
    case: int = ACC


def _verbs(rows: str, aspect: str) -> tuple[Verb, ...]:
    return tuple(_verb(row, aspect) for row in rows.strip().splitlines())


def _verb(row: str, aspect: str) -> Verb:
    english, german, subjects, complements = (part.strip() for part in row.split("|"))
    base, *forms = (word.replace("_", " ") for word in english.split())
    past, participle = forms or [english_past(base)] * 2
    frame, *arguments = complements.split()
    manners = tuple(arguments) if frame == "where" else ()
    # 'about auf:acc people' names the preposition and its case before the nouns.
    preposition, _, case = arguments.pop(0).partition(":") if frame == "about" else ("", "", "")
    return Verb(
        en=(base, english_third(base), past, participle, english_ing(base)),
        de=german_verb(german),
        aspect=aspect,
        subjects=() if subjects == "it" else nouns_of(subjects),
        frame=frame,
        objects=() if manners else nouns_of(" ".join(arguments)),
        manners=manners,
        preposition=preposition,
        case=DAT if case == "dat" else ACC,
    )


PEOPLE = nouns_of("people")
VERBS_OF_ACTION = _verbs(ACTIONS, "action")
VERBS = VERBS_OF_ACTION + _verbs(INSTANTS, "instant") + _verbs(STATES, "state")
BE = VERBS[-1]
REPORTING = _verbs(REPORTS, "state")
ASKING = _verbs(INQUIRIES, "state")
KNOW = REPORTING[-1]
ATTEMPTING = _verbs(ATTEMPTS, "instant")
WEATHER = _verbs(WEATHER_VERBS, "action")


class Modal(NamedTuple):
    """`aux` stands before the English verb; 'want to' has none and is conjugated itself."""

    aux: str
    base: str  # what stands between aux and verb: 'like to'; or the verb itself: 'want to'
    third: str
    de: FourForms
    de_negated: FourForms  # 'must not' is 'darf nicht'


_MUSS: FourForms = ("muss", "musst", "muss", "müssen")
_DARF: FourForms = ("darf", "darfst", "darf", "dürfen")
_KANN: FourForms = ("kann", "kannst", "kann", "können")
_WILL: FourForms = ("will", "willst", "will", "wollen")
_SOLLTE: FourForms = ("sollte", "solltest", "sollte", "sollten")
_MOECHTE: FourForms = ("möchte", "möchtest", "möchte", "möchten")
_WIRD: FourForms = ("werde", "wirst", "wird", "werden")

CAN = Modal("can", "", "", _KANN, _KANN)
MODALS = (
    CAN,
    Modal("must", "", "", _MUSS, _DARF),
    Modal("may", "", "", _DARF, _DARF),
    Modal("should", "", "", _SOLLTE, _SOLLTE),
    Modal("would", "like to", "", _MOECHTE, _MOECHTE),
    Modal("", "want to", "wants to", _WILL, _WILL),
    Modal("", "have to", "has to", _MUSS, _MUSS),
)
WILL = Modal("will", "", "", _WIRD, _WIRD)
