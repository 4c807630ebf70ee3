"""The same signs as in `leak_signs.py`, for German, French, Spanish, Italian, Portuguese and Dutch: their obvious forms (AUTO-9).

Text comes without accents, so `unvollständig` is `unvollstandig` here.
"""

from __future__ import annotations

from rapport.followups.leak_signs import Leak

ABROAD: dict[Leak, tuple[str, ...]] = {
    "system": (
        r"\bsystem-?(?:nachricht|prompt|aufforderung|anweisung|hinweis|trigger|timer|impuls)(?:en|s)?\b",
        (
            r"\b(?:das|vom) system (?:hat (?:mich|mir)|fordert mich|bittet mich|will, dass ich|dazu|aus|aufgefordert"
            r"|angewiesen)\b"
        ),
        r"\b(?:message|invite|prompt|instructions?|consigne|rappel|declencheur) (?:du |de |interne du )?systeme\b",
        r"\ble systeme (?:m'a|me|m')\b|\b(?:demande|indique|exige|declenche|envoye|prevu) par le systeme\b",
        (
            r"\bvom system (?:verlangt|gefordert|gewunscht|vorgegeben|aufgefordert|beauftragt|ausgelost|erinnert"
            r"|gebeten)\b|\bwie vom system\b"
        ),
        (
            r"\b(?:pedido|indicado|solicitado|ordenado|requerido|instruido|activado|gerado|generado"
            r"|ativado) (?:por el|pelo) sistema\b|\b(?:richiesto|chiesto|indicato|generato|attivato"
            r"|previsto) dal sistema\b"
        ),
        (
            r"\b(?:moet|moest|mag) van het systeem\b|\bdoor het systeem (?:gevraagd|gestuurd|geactiveerd|aangestuurd"
            r"|verzocht)\b"
        ),
        (
            r"\b(?:mensaje|prompt|instruccion(?:es)?|indicacion(?:es)?|orden|disparador|activador"
            r"|temporizador) (?:del|de|interno del) sistema\b"
        ),
        r"\bel sistema me (?:pid|ha|dij|indic|orden|avis|recuerd)",
        r"\b(?:messaggio|prompt|istruzion[ei]|richiesta|avviso|promemoria) (?:di|del|dal) sistema\b",
        r"\bil sistema mi (?:ha|chied|dic|ricord)",
        r"\b(?:mensagem|prompt|instrucao|instrucoes|comando|lembrete|gatilho) (?:do|de) sistema\b",
        r"\bo sistema me (?:ped|mand|disse|instru|lembr)",
        r"\bsysteem-?(?:bericht|prompt|instructie|opdracht|trigger|herinnering)(?:en|s|je)?\b",
        r"\bhet systeem (?:heeft mij|heeft me|vraagt me|vroeg me|zegt dat ik)\b",
        (
            r"\b(?:interner|internen|interne|automatischer|automatischen) (?:ausloser|timer|anweisung|trigger"
            r"|erinnerung)\b"
        ),
        (
            r"\b(?:declencheur|minuteur|rappel|instruction) (?:interne|automatique)\b|\b(?:temporizador|activador"
            r"|disparador|recordatorio) (?:interno|automatico)\b"
        ),
        (
            r"\b(?:timer|trigger|promemoria) (?:interno|automatico)\b|\b(?:gatilho|temporizador|lembrete) (?:interno"
            r"|automatico)\b|\binterne (?:timer|trigger|opdracht|instructie)\b"
        ),
    ),
    "trigger": (
        (
            r"\b(?:autonome|synthetische|autonomen|synthetischen) (?:nachricht|nachfrage|anfrage|eingabe|bericht)\b"
            r"|\b(?:autonoom|synthetisch) bericht\b"
        ),
        (
            r"\bmessage (?:autonome|synthetique)\b|\bmensaje (?:autonomo|sintetico)\b|\bmessaggio (?:autonomo"
            r"|sintetico)\b|\bmensagem (?:autonoma|sintetica)\b"
        ),
        (
            r"\b(?:dies|das|hier) ist (?:nur )?eine (?:automatische|automatisierte|automatisch \w+"
            r"|geplante) (?:nachricht|nachfrage|erinnerung|ruckfrage)"
        ),
        r"\bdiese nachricht (?:wurde|wird)(?: \w+){0,3} (?:ausgelost|generiert|erstellt|verschickt|gesendet)",
        (
            r"\bmein (?:interner )?timer\b|\btimer (?:hat|erinnert) mich\b|\bfollow-?up-?(?:anfrage|nachricht"
            r"|aufforderung|verzoek|bericht)|\b(?:folgeanfrage|nachfassanfrage|nachfassaufforderung|opvolgverzoek"
            r"|vervolgverzoek|opvolgbericht)"
        ),
        (
            r"\b(?:ceci|c'est|voici)(?: est)? un message (?:automatique|automatise|programme)|\bce message (?:a ete"
            r"|est)(?: \w+){0,2} (?:declenche|genere|envoye|automatique|programme)"
        ),
        r"\b(?:demande|message|requete) de (?:suivi|relance)\b(?! (?:a|au|aupres|de|du|chez|pour) )",
        (
            r"\beste (?:es un )?mensaje(?: \w+){0,3} (?:automatico|generado|activado|programado|automaticamente)"
            r"|\b(?:solicitud|peticion) de seguimiento\b(?! (?:a|al|con|en|de|del|para) )"
        ),
        (
            r"\bquesto (?:e un )?messaggio(?: \w+){0,3} (?:automatico|generato|attivato|automaticamente|programmato)"
            r"|\brichiesta di (?:follow-?up|ricontatto|proseguimento)\b"
        ),
        (
            r"\besta (?:e uma )?mensagem(?: \w+){0,3} (?:automatica|gerada|ativada|automaticamente|programada)"
            r"|\b(?:solicitacao|pedido) de (?:acompanhamento|follow-?up|seguimento)\b"
        ),
        (
            r"\bdit (?:is een )?(?:automatisch|geautomatiseerd|gepland)e? bericht|\bdit bericht (?:is|werd"
            r"|wordt)(?: \w+){0,2} (?:automatisch|gegenereerd|getriggerd|verstuurd door het)"
        ),
    ),
    "incomplete_message": (
        (
            r"\b(?:unvollstandige|abgeschnittene|unvollendete|leere)[nr]? (?:nachricht|anfrage|eingabe"
            r"|prompt)\b(?! (?:von|vom|an) )"
        ),
        (
            r"\b(?:deine|ihre|eure) (?:letzte )?(?:nachricht|frage|anfrage|eingabe)(?: \w+){0,4} (?:unvollstandig"
            r"|abgeschnitten|abgebrochen|leer)\b"
        ),
        (
            r"\bmessages? (?:incomplete?|tronque|inacheve|vide)s?\b(?! (?:de|du) )|\b(?:votre"
            r"|ton) (?:dernier )?message (?:semble|parait|a l'air|est|a ete|etait|s'est)(?: \w+){0,4} (?:incomplet"
            r"|coupe|tronque|vide|interrompu|inacheve)"
        ),
        (
            r"\bmensaje (?:incompleto|cortado|truncado)\b(?! (?:de|del) )|\b(?:tu|su) (?:ultimo )?mensaje (?:parece"
            r"|esta|estaba|quedo|se|fue|llego|ha)(?: \w+){0,4} (?:incompleto|cortado|vacio|corto|truncado|medias)\b"
            r"|\bse (?:ha )?cort(?:o|ado) tu mensaje"
        ),
        (
            r"\bmessaggio (?:incompleto|troncato|interrotto)\b(?! (?:di|del|della) )|\b(?:tuo"
            r"|suo) (?:ultimo )?messaggio (?:sembra|pare|e|era|risulta|si)(?: \w+){0,4} (?:incompleto|interrotto"
            r"|troncato|vuoto|tagliato|meta)\b"
        ),
        (
            r"\bmensagem (?:incompleta|cortada|truncada)\b(?! (?:de|do|da) )|\b(?:sua"
            r"|tua) (?:ultima )?mensagem (?:parece|esta|foi|ficou|veio|chegou|estava)(?: \w+){0,4} (?:incompleta"
            r"|cortada|vazia|truncada|metade)\b"
        ),
        (
            r"\b(?:onvolledig|onvoltooid|afgekapt|incompleet)e? (?:bericht|prompt|verzoek)\b(?! van )|\b(?:je|jouw"
            r"|uw) (?:laatste )?bericht (?:lijkt|is|was|schijnt|werd)(?: \w+){0,4} (?:onvolledig|afgebroken|afgekapt"
            r"|leeg|incompleet)"
        ),
    ),
    "instructions": (
        (
            r"\bwie (?:angewiesen|aufgefordert|beauftragt|instruiert)\b|\b(?:laut|gemass) (?:meiner"
            r"|meinen) (?:anweisung|vorgabe|instruktion)(?:en)?\b"
        ),
        (
            r"\bich (?:wurde|bin|werde)(?: \w+){0,4} (?:angewiesen|aufgefordert|beauftragt|gebeten|programmiert"
            r"|instruiert)\b|\bich soll(?:te)?(?: \w+){0,6} (?:nachfragen|nachhaken|nachfassen|erkundigen|anknupfen"
            r"|mich (?:wieder )?(?:bei dir )?melden|(?:gesprach|unterhaltung)(?: \w+){0,2} (?:fort\w+|weiter\w+))"
        ),
        (
            r"\b(?:(?:du hast|sie haben|man hat|ihr habt) mich|mir wurde|man hat mir)(?: \w+){0,2} (?:gebeten"
            r"|aufgefordert|angewiesen|gesagt|aufgetragen),?(?: \w+){0,6} (?:gesprach|unterhaltung|nachzufragen"
            r"|nachzuhaken|nachzufassen|fortzusetzen|zu erkundigen|nachfragen|nachhaken|erkundigen)"
        ),
        (
            r"\b(?:deine|ihre) (?:letzte )?nachricht (?:ist|war|klingt|scheint)(?: \w+){0,4} (?:anweisung|aufforderung"
            r"|instruktion|prompt)\b|\b(?:gesprach|unterhaltung)(?: \w+){0,2} naturlich (?:fort\w*"
            r"|weiter\w*)"
        ),
        (
            r"\bcomme (?:on me l'a (?:demande|dit|indique)|(?:indique|exige) (?:dans|par) (?:mes"
            r"|les) (?:instructions|consignes))|\bselon mes (?:instructions|consignes)\b"
        ),
        (
            r"\b(?:on m'a|il m'a ete|j'ai ete)(?: \w+)? (?:demande|dit|charge|ordonne|invite|programme)e? (?:de|pour"
            r"|a) (?:\w+ ){0,2}(?:continuer|poursuivre|relancer|reprendre|faire|prendre|suivre|revenir)"
        ),
        (
            r"\b(?:tu m'as|vous m'avez|on m'a|il m'a ete)(?: \w+)? (?:demande|dit|charge|prie) (?:de|d')(?: ?\w+){0,3}"
            r" ?(?:un suivi|le suivi|continuer|poursuivre|reprendre|relancer|un point sur)\b|\bje (?:dois|suis censee?"
            r"|suis chargee? de|suis la pour)(?: \w+){0,2} (?:faire un suivi|faire le suivi|assurer le suivi|te relancer"
            r"|vous relancer|poursuivre (?:notre|la) conversation)\b"
        ),
        (
            r"\b(?:votre|ton) (?:dernier )?message (?:est|etait|semble)(?: \w+){0,3} (?:instruction|consigne)\b|\b(?:continu|poursuiv"
            r"|repren)\w+ (?:notre|la|cette) (?:conversation|discussion)(?: \w+){0,1} (?:naturellement|de (?:maniere"
            r"|facon) naturelle)"
        ),
        (
            r"\bsegun mis instrucciones\b|\bcomo se me (?:indico|pidio|ha (?:indicado|pedido)|ordeno)"
            r"|\b(?:me han (?:pedido|dicho|indicado|ordenado)|me (?:pidieron|dijeron|indicaron|ordenaron)"
            r"|se me (?:pidio|ha pedido|indico|ordeno|ha indicado))(?: \w+){0,2} (?:seguimiento|continu\w+|retom\w+"
            r"|sig\w+|segu\w+|contact\w+|hacer|haga|dar|dé)"
        ),
        (
            r"\b(?:me|se me|nos) (?:(?:han?|has|habeis) )?(?:pid\w+|pedid[oa]|dij\w+|dicho|indic\w+|orden\w+"
            r"|solicit\w+|encarg\w+|instruy\w+)(?: \w+){0,4} (?:seguimiento|(?:continu|retom)\w+(?: con)? (?:nuestra|la"
            r"|esta) conversacion|pregunt\w+ (?:por|sobre) (?:la (?:tarea|decision|pregunta)\b|el tema))"
        ),
        (
            r"\b(?:debo|tengo que|se supone que debo|he de) (?:hacer(?:te)?|dar(?:le|te)?)(?: \w+){0,2} seguimiento\b"
            r"|\b(?:tu|su) (?:ultimo )?mensaje (?:es|era|parece)(?: \w+){0,3} (?:instruccion|orden|indicacion)\b"
        ),
        (
            r"\bme (?:pediste|has pedido|pidio|pidieron)(?: que)? (?:continu|sigu|segu|retom|hacer un segu"
            r"|hiciera un segu)\w*|\b(?:continu|sig|segu|retom)\w+(?: con)? (?:nuestra"
            r"|la) conversacion(?: \w+){0,1} (?:naturalmente|de (?:forma|manera) natural|con naturalidad)"
        ),
        (
            r"\bsecondo le mie istruzioni\b|\bcome (?:da istruzioni|mi e stato (?:chiesto|detto|indicato))"
            r"|\bmi e stato (?:chiesto|detto|ordinato|indicato) di\b|\bmi hai chiesto di (?:continuare|proseguire"
            r"|riprendere|fare un follow)"
        ),
        (
            r"\bmi (?:hanno|hai|ha) (?:chiesto|detto|ordinato|incaricato) di (?:seguir\w+|ricontattar\w+|fare un"
            r"|proseguire|riprendere|continuare|verificare|informarmi|dare seguito|chiederti (?:della|del"
            r"|dell'))|\bdevo (?:fare un follow-?up|dare seguito|ricontattarti)\b|\bsono stat[oa] (?:incaricat|istruit)[oa]"
            r"|\b(?:tuo|suo) (?:ultimo )?messaggio (?:e|era|sembra)(?: \w+){0,3} (?:istruzione|comando)\b"
        ),
        (
            r"\b(?:continu|prosegu|riprend)\w+(?: con)?(?: la)? (?:nostra|la"
            r"|questa) conversazione(?: \w+){0,1} (?:naturalmente|in (?:modo|maniera) naturale|con naturalezza)"
        ),
        (
            r"\b(?:conforme|segundo|de acordo com)(?: as)? minhas instrucoes\b|\bconforme (?:instruido"
            r"|fui instruid[oa])|\b(?:fui (?:instruid|orientad|solicitad|programad)[oa]|me (?:pediram|disseram"
            r"|instruiram|foi pedido))(?: \w+){0,2} (?:continu|dar|fazer|retom|pergunt|acompanh|segu)\w*"
        ),
        (
            r"\b(?:(?:pediram|disseram|mandaram|pediu|pediste|solicitaram)-me|foi-me (?:pedido|dito|solicitado)"
            r"|(?:voce|me) (?:me )?(?:pediu|pediram|disseram|mandaram|pediste))(?: \w+){0,2} (?:dar seguimento|fazer um"
            r"|acompanh\w+|verific\w+|retom\w+|dar continuidade|entrar em contat?to|continu\w+ (?:a|com a|esta|nossa))"
            r"|\bfui (?:encarregad|mandad)[oa] de\b|\b(?:preciso|devo|tenho (?:que|de)) (?:de )?(?:dar seguimento"
            r"|fazer (?:o|um) acompanhamento)\b|\b(?:sua|tua) (?:ultima )?mensagem (?:e|era|parece)(?: \w+){0,3}"
            r" (?:instrucao|comando)\b"
        ),
        (
            r"\b(?:voce me pediu|me pediste|pediste-me|tu pediste) (?:para|que) (?:continu|retom|prossegu|dar"
            r"|segu)\w*|\b(?:continu|retom|prossegu)\w+(?: com)?(?: a)? (?:nossa|a"
            r"|esta) conversa(?: \w+){0,1} (?:naturalmente|de (?:forma|maneira) natural|com naturalidade)"
        ),
        (
            r"\bzoals (?:geinstrueerd|opgedragen)\b|\bvolgens mijn (?:instructies|opdracht)\b|\b(?:ik ben|ik werd"
            r"|mij is|me is|er is mij)(?: \w+){0,2} (?:gevraagd|geinstrueerd|opgedragen|verteld"
            r"|geprogrammeerd)(?: om)?\b"
        ),
        (
            r"\b(?:je|u|men|ze) (?:hebt|heeft|hebben|vroeg|vroegen) (?:me|mij)(?: \w+){0,8} (?:opvolgen|op te volgen"
            r"|te informeren|na te vragen|navraag|te checken|contact op te nemen)\b|\ber (?:werd|is) (?:me|mij) (?:gevraagd"
            r"|opgedragen|verteld)|\bik (?:moet|moest)(?: \w+){0,6} (?:opvolgen|navragen|navraag doen|informeren)\b"
            r"|\b(?:je|uw|jouw) (?:laatste )?bericht (?:is|was|lijkt)(?: \w+){0,3} (?:instructie|opdracht)\b"
        ),
        (
            r"\bje (?:hebt|vroeg) me(?: \w+){0,2}(?: om)? (?:ons|het) gesprek\b|\b(?:ons"
            r"|het) gesprek(?: op een)? natuurlijk(?:e wijze|e manier)?(?: \w+){0,1} (?:voort|verder|te vervolgen"
            r"|vervolgen|voor te)"
        ),
    ),
    "third_person": (
        (
            r"\bder (?:user|nutzer|benutzer|anwender) (?:hat|antwortet|muss|wartet|reagiert"
            r"|mochte, dass ich)(?: \w+){0,6} (?:nicht|geantwortet|reagiert|gestellt|entscheid\w+|entschieden"
            r"|treffen)"
        ),
        (
            r"\bl'utilisat(?:eur|rice) (?:n'a|a pose|doit (?:prendre|decider)|attend|ne repond|hesite|m'a)"
            r"|\bel usuario (?:(?:aun|todavia) )?(?:no (?:ha )?(?:respond|contest)\w*|pregunto|hizo una pregunta"
            r"|(?:tiene que|debe|necesita) (?:tomar|decidir))"
        ),
        (
            r"\bl'utente (?:(?:ancora )?non (?:ha (?:ancora )?)?(?:rispo|repli)\w*|ha (?:fatto una|posto una"
            r"|chiesto)|deve (?:prendere|decidere))|\bo (?:usuario|utilizador) (?:ainda )?(?:nao (?:respondeu|tomou"
            r"|deu)|fez uma pergunta|perguntou|precisa (?:tomar|decidir))"
        ),
        (
            r"\bde gebruiker (?:heeft|antwoordt|moet|stelde|reageert)(?: \w+){0,5} (?:niet|geantwoord|gereageerd"
            r"|gesteld|vraag|beslissing|beslissen|nemen)"
        ),
    ),
}
