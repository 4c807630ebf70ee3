"""The same signs in Japanese, Chinese, Korean, Russian, Arabic, Turkish and Polish: the few obvious words (AUTO-9).

They are written as one writes them and brought into the form of a reply by `plain`, which also takes the marks off
Japanese and Arabic letters. It makes letters small, so an escape like a capital W has no place here.
"""

from __future__ import annotations

from rapport.followups.leak_signs import Leak
from rapport.followups.word_stems import plain

_WRITTEN: dict[Leak, tuple[str, ...]] = {
    "system": (
        # Japanese, Chinese, Korean
        r"システム(?:メッセージ|プロンプト|からの(?:メッセージ|指示|依頼))|システム.{0,12}(?:指示|命令|促|依頼|求め|頼まれ)",
        r"(?:系统|系統)(?:消息|提示词|指令|讯息|訊息|要求我|让我|讓我|叫我|通知我|提示我|指示我)|(?:收到|根据|按照)(?:了)?(?:一条)?(?:系统|系統)",
        r"시스템 ?(?:메시지|프롬프트|지시)|시스템(?:에서|이|으로부터).{0,15}(?:지시|요청|요구|명령|하라고)",
        # Russian, Arabic, Turkish, Polish
        r"системн\w+ (?:сообщени|подсказк|промпт|инструкц|запрос|команд)|система (?:\w+ )?(?:попросила|велела|просит|поручила|напомнила|дала)",
        r"رسالة (?:من )?(?:ال)?نظام|النظام (?:طلب|امر|يطلب|اخبر)|طلب النظام",
        r"sistem (?:mesajı|istemi|komutu|talimatı)|sistem (?:benden|bana)\b|sistem tarafından",
        (
            r"(?:komunikat|polecenie|prompt|instrukcj\w+) system\w+|systemow\w+ (?:komunikat|wiadomo|polecen|prompt)|wiadomość systemow"
            r"|system (?:poprosił|kazał|nakazał|prosi|polecił) (?:mnie|mi)"
        ),
    ),
    "trigger": (
        r"自動(?:送信|生成)?(?:された)?メッセージ|フォローアップ(?:の)?(?:リクエスト|依頼|要求|メッセージ)",
        r"(?:自动|自動)(?:发送|發送|生成)?的?(?:跟进|跟進|提醒)?(?:消息|訊息|讯息)|跟进(?:请求|消息)|跟進(?:請求|訊息)",
        r"자동(?:으로 (?:생성|전송)된)? ?메시지|(?:후속|팔로우업) (?:요청|메시지)",
        r"автоматическ\w+ (?:сообщени|напоминани)|رسالة (?:الية|تلقائية)|otomatik (?:bir )?(?:mesaj|takip)|automatyczn\w+ (?:wiadomo|przypomnien)",
    ),
    "incomplete_message": (
        r"(?:不完全な|途中で切れた)メッセージ|メッセージが(?:途中|不完全|切れ)",
        r"(?:消息|信息|訊息|讯息)(?:似乎|好像|看起来)?(?:是|有点)?(?:不完整|被截断|被截斷|不完全)",
        r"메시지가.{0,10}(?:불완전|잘린|잘렸|끊긴|끊겼|완전하지)",
        r"(?:ваше|твое|последнее) сообщение.{0,25}(?:неполн|обрыва|оборва|обрезан|инструкц)|رسالتك.{0,15}(?:غير مكتملة|ناقصة|مقطوعة)",
        r"mesajın(?:ız)?.{0,15}(?:eksik|yarım|kesilmiş|tamamlanmamış)|(?:twoja|pana|pani) (?:ostatnia )?wiadomość.{0,20}(?:niekompletn|urwan|ucięt|niepełn)",
    ),
    "instructions": (
        # Saying yes to begin with, as in `openings.py`.
        (
            r"^[^\w]{0,6}(?:(?:oczywiście|jasne|rozumiem|z przyjemnością|tabii(?: ki)?|elbette|anlaşıldı|конечно|поняла?|хорошо"
            r"|разумеется|بالتأكيد|بالطبع|حسنا)(?= ?[!.:])|もちろんです|承知(?:いた)?しました|かしこまりました|わかりました|分かりました"
            r"|了解(?:です|しました|いたしました)|(?:好的|当然|當然|没问题|沒問題|明白了?|收到|当然可以)(?=[!。])|네,? 알겠습니다|알겠습니다"
            r"|물론(?:이죠|입니다|이에요)|그럼요)"
        ),
        (
            r"フォローアップ.{0,12}(?:指示|依頼|頼まれ|言われ|求められ|促され)|(?:会話を(?:自然に)?続け|声をか?け|連絡す|確認す|尋ね|フォローす).{0,8}"
            r"よう(?:に)?(?:指示|言われ|頼まれ|求められ|依頼|促され)|自然に会話を続け"
        ),
        (
            r"(?:我)?(?:被|受到?|收到|接到)(?:了)?(?:要求|指示|指派|告知|指令|吩咐|提示).{0,6}(?:跟进|跟進|继续|繼續|询问|詢問|联系|聯繫|问)"
            r"|(?:您|你)(?:刚才|剛才)?(?:要求|让|讓|叫|请|請)我.{0,4}(?:跟进|跟進|(?:继续|繼續)(?:我们|我們|对话|對話|聊))"
            r"|自然地?(?:继续|繼續).{0,6}(?:对话|對話|谈话|聊天|交谈)"
        ),
        (
            r"(?:후속|팔로우업|팔로업|확인|안부|연락|대화를 (?:계속|이어)).{0,15}(?:지시|요청|하라는|달라는).{0,6}(?:받|되었|됐)"
            r"|대화를 자연스럽게 (?:이어|계속)"
        ),
        (
            r"(?:мне|меня) (?:\w+ )?(?:попросили|поручили|велели|проинструктировали|поручено|велено|сказали|указали)(?: \w+){0,2}"
            r" (?:уточнить|продолжить|связаться|узнать|спросить|напомнить|проверить|поинтересоваться|вернуться)"
            r"|(?:ты|вы) (?:по)?просил\w* меня (?:продолжить|уточнить|вернуться к)|естественно продолж|продолж\w+ (?:\w+ )?(?:разговор|беседу) естественно"
        ),
        (
            r"(?:طلب|قيل|طلبت|طلبتم) (?:مني|لي)(?: ان)? (?:المتابعة|متابعة|اتابع|التواصل|اتواصل|مواصلة|اواصل|الاستمرار|استمر|السؤال|اسال)"
            r"|تم (?:توجيهي|تكليفي|ارشادي)|تلقيت تعليمات"
        ),
        (
            r"(?:takip|devam|kontrol|sormam|iletişime).{0,20}(?:istendi|söylendi|talimat|görevlendirildim)|\bbenden .{0,40}istendi"
            r"|(?:konuşma|sohbet)\w* doğal (?:bir şekilde|olarak) (?:devam|sürdür)"
        ),
        (
            r"(?:poproszono|poinstruowano|polecono|kazano) (?:mnie|mi)\b|(?:mnie|mi) (?:poproszono|poinstruowano|polecono|kazano)"
            r"|został[ae]m (?:poproszon|poinstruowan|zobowiązan)\w+|(?:poprosił[ae]ś|prosił[ae]ś) mnie,? (?:o (?:kontynu|sprawdz|nawiąz)|żebym (?:kontynu|dopyt))"
            r"|kontynu\w+ (?:\w+ )?rozmow\w+ (?:naturalnie|w naturalny)"
        ),
    ),
    "third_person": (
        r"ユーザー(?:さん)?(?:は|が|から).{0,15}(?:返信|返答|回答|応答|質問|返事)",
        r"(?:用户|用戶)(?:还|還|尚|仍|一直)?(?:没有|未|沒有|没|沒)?(?:回复|回答|回應|回覆|响应|提出|问了|需要(?:做|决定))",
        r"사용자(?:가|는|께서|님이).{0,15}(?:응답|답변|답장|질문|대답)",
        r"пользователь (?:\w+ )?(?:не ответил|не отвечает|задал|должен|молчит)|المستخدم (?:لم|لا|سال|يحتاج)",
        r"kullanıcı .{0,20}(?:yanıt|cevap|sordu|karar)|użytkownik (?:\w+ )?(?:nie odpowiedział|zadał|musi|milczy)",
    ),
}
AFAR: dict[Leak, tuple[str, ...]] = {kind: tuple(map(plain, signs)) for kind, signs in _WRITTEN.items()}
