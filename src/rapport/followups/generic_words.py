"""Words that a memory or a topic may hold although the person did not write them: they name nobody and nothing."""

from __future__ import annotations

from rapport.followups.word_stems import stem, word_set

# Left out on purpose: whatever could turn somebody's words into an order or a permission (approve, send, pay, trust, allow).
GENERIC = word_set(
    """
    user users person someone name names named call calls called go goes by like likes liked love loves enjoy enjoys adore adores
    prefer prefers preferred preference preferences favourite favorite favours dislike dislikes hate hates fond interest
    interested interests fan want wants wish wishes hope hopes hoping plan plans planned planning intend intends going need
    needs live lives lived living reside resides based stay stays home work works worked working job employed profession
    occupation study studies studied studying student learn learns learning know knows speak speaks have has had having own owns
    keep keeps get gets be being become becomes do does doing make makes say says said mention mentioned states stated state
    describe describes describing consider considers considering feel feels feeling find finds think thinks tend tends usually
    often sometimes currently recently lately soon previously formerly regularly generally longer mostly mainly originally year
    years old age aged birthday born date day days time family member relative has got start started starting try tries
    trying attempt attempting look looking search searching decide deciding decision choose choosing undecided unsure whether
    question task thing topic finish finished finishing still open do did done talk talking discuss about regarding
    concerning waiting answer eat eats eating drink drinks drinking avoid avoids suffer suffers practise practises play plays
    play playing read reads reading watch watches use uses take takes go goes visit will can able unable cannot
    relationship married single their theirs they them his her person's yourself
    nutzer nutzerin benutzer heisst name namens lebt wohnt wohne lebe arbeitet mag liebt bevorzugt hasst hat ist isst trinkt
    spricht studiert lernt plant mochte will jahre alt geboren interessiert sich seine seiner seinen ihre ihrer ihren
    utilisateur utilisatrice s'appelle appelle habite vit travaille aime prefere deteste veut voudrait parle etudie a ans ne nee
    mange boit
    usuario usuaria llama vive trabaja gusta gustan prefiere odia quiere habla estudia anos nacio tiene come bebe
    utente chiama abita vive lavora ama piace piacciono preferisce odia vuole parla studia anni nato nata ha mangia beve
    utilizador utilizadora usuario chama mora vive trabalha gosta prefere odeia quer fala estuda anos nasceu tem come bebe
    gebruiker heet woont werkt houdt haat wil spreekt studeert jaar oud geboren heeft eet drinkt graag
    пользователь пользователя пользователю зовут живет работает любит предпочитает хочет говорит учится лет
    """
)

_EQUIVALENT = """
mum mom mother mama mutter maman|dad father papa daddy vater|kid kids child children|flat apartment|film films movie movies
holiday holidays vacation|bike bicycle cycling cycle bikes|uni university college|veggie vegetarian|tv television
grandma grandmother granny|grandpa grandfather|football soccer|lorry truck|colour color|autumn fall|doctor physician gp
dev developer|photo photograph photos photography|maths math mathematics|phone telephone call ring
"""

EQUIVALENT: dict[str, str] = {
    form: group.split()[0]
    for group in _EQUIVALENT.replace("\n", "|").split("|")
    for word in group.split()
    for form in (word, stem(word))
}
"""Words that stand for each other, and their stems, by the first of their group."""

_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS: dict[str, str] = {word: str(number) for number, word in enumerate(_NUMBERS.split())}

NEGATIONS = word_set(
    """
    no not never none nothing nobody neither nor without cannot can't don't doesn't didn't won't isn't aren't wasn't haven't
    hasn't couldn't shouldn't wouldn't ain't longer stop stopped quit quits hate hates dislike dislikes avoid avoids less unable
    nicht kein keine keinen nie niemals ohne hasse hasst ne pas jamais sans rien deteste nunca sin jamas odio odia non mai
    senza nao nunca sem odeio odeia niet geen nooit zonder haat не нет никогда без
    """
)
UNIVERSALS = word_set(
    """
    always every all each everything everybody everyone whenever forever whoever whatever
    immer alle alles jeder jede jedes toujours tout tous toute toutes chaque siempre todo todos toda todas cada
    sempre tutto tutti tutte ogni tudo altijd elke iedere всегда все каждый
    """
)
